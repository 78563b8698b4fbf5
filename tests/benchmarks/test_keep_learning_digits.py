"""The stream of scikit-learn's digits: nets at once are nets alone; claims on made-up records; the page."""

from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from benchmarks import keep_learning_digits as stream
from benchmarks import keep_learning_page as page
from benchmarks import streams_page
from benchmarks.keep_learning_figure import SERIES, figure
from racecar import Racecar, orthogonality, presets
from tests.pages import emptied

ROOT = Path(__file__).parents[2]
SEEDS = (3, 4)


def alone(net, name, seed, strength, data):
    """Accuracies by an ordinary loop."""
    model = stream.first_weights(net, seed)
    layers = [layer for layer, module in model.named_modules() if hasattr(module, "weight")]
    rr = Racecar(model, data.x[:8], **presets.keep_learning)
    if name == "linear":
        rr.weight = {"*": strength, "@head": 0}
    optimiser, found, factor = torch.optim.Adam(model.parameters(), 1e-3), [], 0.0
    for y, epochs in zip(data.y, data.order, strict=True):
        for chosen in epochs.flatten().split(16):
            output, loss = (model(data.x[chosen]), 0) if name in ("plain", "orthogonality") else rr(data.x[chosen])
            if name == "orthogonality":
                loss = strength * orthogonality.so(model, layers=layers[:-1])
            task = F.cross_entropy(output, y[chosen])
            if name == "share":
                factor = factor or strength * norm(model, task) / norm(model, loss)  # of the first step
                loss = factor * loss
            found.append((output.argmax(1) == y[chosen]).float().mean())
            optimiser.zero_grad()
            (task + loss).backward()
            optimiser.step()
    return torch.stack(found).reshape(len(data.y), -1).mean(1)


def norm(model, scalar):
    """Of the gradient of all weights but the head's."""
    weights = [one for one in model.parameters() if one.dim() > 1][:-1]
    return torch.cat([one.flatten() for one in torch.autograd.grad(scalar, weights, retain_graph=True)]).norm()


@pytest.mark.parametrize(
    "net, name, strengths",
    [
        ("MLP", "plain", [1.0]),
        ("MLP", "linear", [3.0, 0.1]),
        ("convolutions", "keep_learning", [1.0]),
        ("convolutions", "orthogonality", [0.3, 0.01]),
        ("convolutions", "share", [0.3, 0.03]),
    ],
)
def test_nets_at_once_are_nets_alone(net, name, strengths):
    whole = [stream.data(seed, 2, 1) for seed in SEEDS]
    streams = [one._replace(order=one.order[:, :, :96]) for one in whole]
    found = stream.train(name, net, SEEDS, strengths, streams)
    assert found.shape == (len(strengths), 2, 2)
    for i, strength in enumerate(strengths):
        expected = alone(net, name, SEEDS[1], strength, streams[1])
        torch.testing.assert_close(found[i, 1], expected, atol=0.011, rtol=0)  # one of 96 may round otherwise


def test_the_data():
    one, again, other = stream.data(5), stream.data(5), stream.data(6)
    assert (one.x.shape, one.y.shape, one.order.shape) == ((320, 1, 8, 8), (16, 320), (16, 30, 320))
    assert all(torch.equal(a, b) for a, b in zip(one, again, strict=True))
    assert not torch.equal(one.y, other.y)
    assert torch.equal(one.order[7, 3].sort()[0], torch.arange(320))
    assert len(one.x.flatten(1).unique(dim=0)) == 320


def made(net, method, second_half, first_task=0.5, strengths=(1.0,), seeds=stream.JUDGED):
    """A record in which the second half of the tasks goes up by a hundredth from seed to seed."""
    learned = [
        [[start, *[0.0] * 7, *[late + i / 100] * 8] for i in range(len(seeds))]
        for start, late in zip(first_task if isinstance(first_task, list) else [first_task], second_half, strict=True)
    ]
    return {"net": net, "method": method, "seeds": [*seeds], "strengths": [*strengths], "learned": learned}


@pytest.mark.parametrize(
    "plain, rival, share, verdict",
    [(0.3, 0.5, 0.72, "holds"), (0.6, 0.85, 0.6, "refuted"), (0.55, 0.715, 0.67, "undecided")],
)
def test_claims_on_made_up_records(plain, rival, share, verdict):
    """Ours has 70, plus or minus two points from seed to seed."""
    ours = made("MLP", "keep_learning", [0.7])
    for i, one in enumerate(ours["learned"][0]):
        one[8:] = [value + 0.02 * (-1) ** i for value in one[8:]]
    records = [
        ours,
        *(made("MLP", *one) for one in (("plain", [plain]), ("orthogonality", [rival]), ("share", [share]))),
    ]
    found = stream.judge(records)
    assert [one.verdict for one in found] == [verdict] * 3
    gains = [*(100 * (0.7 - value) + 0.4 for value in (plain, rival)), 100 * (share - 0.7) - 0.4]
    assert [one.gain.mean for one in found] == pytest.approx(gains)
    with pytest.raises(ValueError, match="seeds"):
        stream.judge([*records[:2], made("MLP", "orthogonality", [0.5], seeds=(0, 1))])


def test_choosing_on_made_up_records():
    """The best λ of those that leave the first task alone, and a rival's best whatever it costs there."""
    plain = made("MLP", "plain", [0.2])
    linear = made("MLP", "linear", [0.5, 0.7, 0.9], [0.6, 0.485, 0.47], (0.01, 0.1, 1.0))
    assert stream.best_lambda(plain, linear) == 0.1
    assert stream.best(linear) == 1.0
    with pytest.raises(ValueError, match="two points"):
        stream.best_lambda(plain, made("MLP", "linear", [0.9], [0.4]))


def test_a_record_is_made_once(tmp_path, monkeypatch):
    trained = []

    def train(name, net, seeds, strengths, streams):
        trained.append(name)
        return torch.full((len(strengths), len(seeds), 16), 0.25)

    monkeypatch.setattr(stream, "train", train)
    first = stream.record("linear", "MLP", SEEDS, [1.0], tmp_path)
    assert stream.record("linear", "MLP", SEEDS, [1.0], tmp_path) == first
    assert trained == ["linear"]
    assert first["settings"] == {"mode": "linear", "weight": {"*": 1.0, "@head": 0.0}}
    stream.record("linear", "MLP", SEEDS, [1.0, 2.0], tmp_path)
    assert len(trained) == 2, "others were asked for"


def test_the_page_is_that_of_the_records():
    """Else: python -m benchmarks.keep_learning_page, and benchmarks.streams_page"""
    text = (ROOT / "docs/keep-learning.md").read_text()
    assert page.made(streams_page.page(emptied(text), ROOT / "results"), ROOT / "results") == text
    records = {(one["net"], one["method"], one["seeds"][0]): one for one in page.read(ROOT / "results")}
    plain, linear = (records["MLP", name, stream.CHOOSING[0]] for name in ("plain", "linear"))
    assert stream.best_lambda(plain, linear) == presets.keep_learning["weight"]["*"]
    for net in stream.NETS:
        settings = records[net, "keep_learning", 0]["settings"]
        assert settings == {**presets.keep_learning, "weight": dict(presets.keep_learning["weight"])}
        strength = stream.best(records[net, "orthogonality", stream.CHOOSING[0]])
        assert records[net, "orthogonality", 0]["strengths"] == [strength]


def test_the_figure_has_every_task_of_every_method():
    known = {(one["net"], one["method"]): one for one in page.of(page.read(ROOT / "results"), stream.JUDGED)}
    drawn = figure(ROOT / "results")
    for axis in drawn.axes:
        methods = [method for method in SERIES if (axis.get_title(), method) in known]
        for line, method in zip(axis.lines, methods, strict=False):  # the last line is chance
            (runs,) = known[axis.get_title(), method]["learned"]
            expected = [100 * sum(task) / len(task) for task in zip(*runs, strict=True)]
            assert list(line.get_ydata()) == pytest.approx(expected)
