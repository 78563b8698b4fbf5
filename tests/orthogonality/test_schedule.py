"""The weight of a regulariser by epoch, as printed."""

from racecar.orthogonality import BANSAL, BANSAL_CODE, Schedule


def test_schedules():
    at = {0: 1e-2, 19: 1e-2, 20: 1e-3, 49: 1e-3, 50: 1e-4, 69: 1e-4, 70: 1e-6, 119: 1e-6, 120: 0.0, 500: 0.0}
    assert {epoch: BANSAL.at(epoch) for epoch in at} == at
    assert [BANSAL_CODE.at(epoch) for epoch in (0, 20, 50, 70, 120)] == [1e-2, 1e-5, 1e-6, 1e-8, 0.0]
    assert Schedule(((0, 0.5),)).at(7) == 0.5
