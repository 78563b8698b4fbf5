"""The defaults are what the rule chose from the published map, and one place has them."""

import inspect
import math
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from benchmarks import balance, defaults, records
from racecar import Racecar
from racecar.functional import reverse_loss
from racecar.reverse.settings import Settings
from racecar_lab.experiments.safety import told
from tests.pages import emptied

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"


def once(rows_of):
    """Of the same runs."""
    found = {}

    def rows(runs):
        key = tuple(map(id, runs))
        if key not in found:
            found[key] = rows_of(runs)
        return found[key]

    return rows


ROWS = once(told.rows_of)


@pytest.fixture(scope="module", autouse=True)
def read_once():
    """The published map is read and judged once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(defaults, "runs", cache(defaults.runs))
        patch.setattr(defaults, "verdict", cache(defaults.verdict))
        for module in (defaults, told):
            patch.setattr(module, "rows_of", ROWS)
        yield


@pytest.mark.parametrize("made", [Racecar.__init__, reverse_loss])
def test_one_set_of_defaults(made):
    default = Settings()
    names = ("mode", "weight", "scale", "fraction", "input_activation", "gradient", "reduction")
    parameters = inspect.signature(made).parameters
    assert {name: parameters[name].default for name in names} == {name: getattr(default, name) for name in names}


def test_the_default_is_what_the_rule_chose():
    """From every net that was trained, and confirmed on fresh seeds without a death."""
    found, default = defaults.verdict(RESULTS), Settings()
    assert found.chosen is not None
    assert found.chosen.loss == (default.reach, default.scale, default.mode, "all")
    assert found.chosen.lam == default.weight
    assert default.reduction == "mean"
    assert found.confirmed
    assert not found.cells[found.chosen].killed
    assert not found.fresh[found.chosen].killed


def test_the_map_is_large_enough():
    """Gradient × scale × mode × λ over three decades × two learning rates × depth × start × norm, five seeds."""
    found = defaults.verdict(RESULTS)
    losses = {one.loss for one in found.cells if one.loss.layers == "all"}
    assert {loss.gradient for loss in losses} == {"both", "reverse", "weights"}
    assert {loss.scale for loss in losses} == {"sum", "mean", "relative", "ratio", "anchored"}
    assert {loss.mode for loss in losses} == {"full", "layerwise", "input"}
    places = {one.place for one in found.cells}
    assert max(places) / min(places) == pytest.approx(1000)
    assert found.contexts == 54
    assert found.plain >= 54 * 5


def test_a_users_small_nets():
    """None is dead, and none is worse but by noise: three standard errors of the paired difference."""
    found = records.read(RESULTS / "bench", "small-nets*").values()
    assert all(record["settings"] == {} for record in found)
    assert len({one["net"] for record in found for one in record["nets"]}) >= 7
    for one in (one for record in found for one in record["nets"]):
        gains = [b - a for a, b in zip(one["plain"], one["racecar"], strict=True)]
        mean = sum(gains) / len(gains)
        error = (sum((gain - mean) ** 2 for gain in gains) / (len(gains) - 1) / len(gains)) ** 0.5
        assert min(one["racecar"]) >= defaults.DEAD, one["net"]
        assert mean >= -max(3 * error, 0.005), one["net"]


def test_how_far_a_ratio_chooses():
    """Gains are paired with plain training; λ and ratio are medians of the second half."""

    def net(seed, probe, lam, target=None, dead=False, lams=(9, 9, 0.1, 0.3), ratios=(9, 9, 1, 3)):
        return balance.Net("none", "he", 3, seed, lam, target, probe, 0.9, dead, list(ratios), list(lams))

    nets = [net(0, 0.5, 0.0), net(1, 0.6, 0.0), net(0, 0.52, 0.1), net(1, 0.6, 0.1)]
    nets += [net(0, 0.4, None, 1.0, dead=True), net(1, 0.6, None, 1.0)]
    assert balance.table(nets).splitlines()[2:] == [
        "| 3 convolutions, norm none, start he | 0.1 | +1.0 | 0.2 | 2 |",
        "| 3 convolutions, norm none, start he | automatic, ratio 1 | −5.0 (1 of 2 dead) | 0.2 | 2 |",
    ]
    published = balance.read(RESULTS / "bench")
    assert len(published) == len(balance.CONTEXTS) * 3 * (1 + len(balance.LAMS) + len(balance.TARGETS))


def test_sentences_have_the_numbers_of_the_tables():
    """And are refused where other records would not bear them out."""
    found = defaults.verdict(RESULTS)
    head, _, *rows = defaults.markdown(told.fresh_table(found)).splitlines()
    (row,) = [one for one in rows if one.startswith("| reverse · relative · layerwise | 0.001 |")]
    cells = dict(zip(head.split(" | "), row.split(" | "), strict=True))
    batch, group, shallow = (cells[f"probe, {one}"].split()[0][1:] for one in ("batch", "group", "no norm, depth 3"))
    line = " ".join(defaults.gains(RESULTS).split())
    assert f"costs the probe {batch} points with batch norm and {group} with group norm" in line
    assert f"gain at it, {shallow} points at the probe" in line
    other = replace(found.fresh[found.chosen], gains={"batch": (0.01, 0.001), "group": (0.01, 0.001)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(defaults, "verdict", lambda _: replace(found, fresh={found.chosen: other}))
        with pytest.raises(ValueError, match="costs the probe where there are norms"):
            defaults.gains(RESULTS)


def test_why_a_ratio_does_not_choose():
    """Decades that it moves by, from the ratios of the table; refused where no net loses with every λ."""
    nets = balance.read(RESULTS / "bench")
    rows = [line.strip("| ").split(" | ") for line in balance.table(nets).splitlines()[2:]]
    ratio = {(net, lam): float(value) for net, lam, *_, value in rows if "norm none" in net}
    moved = sorted(math.log10(ratio[net, "1"] / ratio[net, "0.001"]) for net in {net for net, _ in ratio})
    line = " ".join(balance.remarks(nets).split())
    low, high = map(float, re.search(r"3 decades of λ move it by (.*) to (.*), so", line).groups())
    assert (low, high) == pytest.approx((moved[0], moved[-1]), abs=0.06)
    with pytest.raises(ValueError, match="others lose with every λ"):
        balance.remarks([one for one in nets if one.norm == "none" and one.depth == 3])


def test_the_page_is_up_to_date():
    """Else: python -m benchmarks.defaults"""
    text = (ROOT / "docs" / "loss.md").read_text()
    assert defaults.page(emptied(text), RESULTS) == text
