"""What steps are compared with: the same loss by hand, and SRIP."""

import pytest
import torch
from torch import nn

from benchmarks.bench import by_hand
from benchmarks.bench.kinds import ByHand, PublishedSrip, Srip, our_srip, published_srip
from racecar.bench.kinds import PLAIN, ReverseKind, reverse_kinds
from racecar.bench.workload import StepOptions, Workload
from racecar.orthogonality import srip
from racecar_lab.networks.dense import dense
from racecar_lab.networks.vgg import vgg


def mlp(half: bool = False) -> Workload:
    torch.manual_seed(0)
    return Workload("mlp", dense([6, 5, 4], nn.ReLU), torch.rand(8, 6), StepOptions(half=half))


def test_labels():
    assert [kind.label for kind in (ByHand(1 / 16), Srip(), PublishedSrip())] == [
        "by hand 1/16",
        "srip",
        "srip as published",
    ]


def test_losses_are_the_task_and_the_regulariser():
    workload = mlp()
    task = PLAIN.loss(workload)()
    ours, hand = (kind.loss(workload)() - task for kind in (ReverseKind(0.5), ByHand(0.5)))
    torch.testing.assert_close(ours, hand)
    torch.testing.assert_close(hand, by_hand.mlp(workload.model, workload.args[0], 0.5)[1])
    torch.manual_seed(1)
    with_srip = Srip().loss(workload)()
    torch.manual_seed(1)
    torch.testing.assert_close(with_srip - task, our_srip(workload.model))
    torch.manual_seed(1)
    published = PublishedSrip().finish(PublishedSrip().loss(workload), workload)()
    torch.manual_seed(1)
    torch.testing.assert_close(published - task, published_srip(workload.model))


def test_a_hand_written_step_must_compute_the_same(monkeypatch):
    tanh = Workload("tanh", dense([3, 3, 3], nn.Tanh), torch.rand(4, 3), StepOptions())
    assert [ByHand(1.0).applies_to(one) for one in (tanh, mlp())] == [False, True]

    def wrong(model, x, fraction):
        output, loss = by_hand.mlp(model, x, fraction)
        return output, 1.1 * loss

    monkeypatch.setattr(by_hand, "find", lambda model: wrong)
    with pytest.raises(RuntimeError, match="their times mean nothing"):
        ByHand(1.0).forward(mlp())


def test_the_check_leaves_no_trace():
    torch.manual_seed(0)
    workload = Workload("vgg", vgg((4, "M"), size=4), torch.rand(8, 3, 4, 4), StepOptions())
    before, state = {k: v.clone() for k, v in workload.model.state_dict().items()}, torch.get_rng_state()
    ByHand(0.5).forward(workload)
    assert all(torch.equal(before[name], value) for name, value in workload.model.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())
    assert all(p.grad is None for p in workload.parameters)


def test_both_srips_are_one():
    """The published loop against ours, with the same directions, and against dense algebra."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(7, 4), nn.Conv2d(2, 30, 3)).double()
    directions = [torch.rand(4, dtype=torch.float64), torch.rand(18, dtype=torch.float64)]
    published = published_srip(model, lambda n, **_: directions[[4, 18].index(n)])
    expected = 0.0
    for w, u in zip((model[0].weight, model[1].weight.flatten(1).t()), directions, strict=True):
        gram = w @ w.t() - torch.eye(len(w), dtype=torch.float64)
        v = gram @ u
        expected += (gram @ (v / v.norm())).norm() ** 2
    torch.testing.assert_close(published, expected)
    ours = srip(model, squared=True, draw=lambda layers, n, one, **_: directions[[4, 18].index(n)].view(layers, n, one))
    torch.testing.assert_close(published, ours)


@pytest.mark.soak
def test_every_kind_is_one_graph_and_none_recompiles_another():
    workload = mlp(half=True)
    with torch._dynamo.config.patch(error_on_recompile=True):
        kinds = [*reverse_kinds([1.0, 0.5]), ByHand(0.5), Srip(), PublishedSrip()]
        losses = [torch.compile(kind.loss(workload), backend="aot_eager", fullgraph=True) for kind in kinds]
        for _ in range(2):
            for loss in losses:
                loss().backward()
    torch._dynamo.reset()
