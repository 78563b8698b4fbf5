"""The stream of scikit-learn's digits: the methods, and claims on made-up records."""

from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from benchmarks import keep_learning_digits as stream
from benchmarks import records
from racecar import Racecar, orthogonality, presets

RESULTS = Path(__file__).parents[2] / "results"
SEEDS = (3, 4)


def train_alone(net, name, seed, strength, data):
    """The accuracy while learning of one net on every task, by an ordinary training loop."""
    model = stream.new_net(net, seed)
    layers = [layer for layer, module in model.named_modules() if hasattr(module, "weight")]
    rr = Racecar(model, data.x[:8], **presets.keep_learning)
    if name == "linear":
        rr.weight = {"*": strength, "@head": 0}
    optimiser, accuracies, factor = torch.optim.Adam(model.parameters(), 1e-3), [], 0.0
    for y, epochs in zip(data.y, data.order, strict=True):
        for chosen in epochs.flatten().split(16):
            output, loss = (model(data.x[chosen]), 0) if name in ("plain", "orthogonality") else rr(data.x[chosen])
            if name == "orthogonality":
                loss = strength * orthogonality.so(model, layers=layers[:-1])
            task = F.cross_entropy(output, y[chosen])
            if name == "share":
                factor = factor or strength * norm(model, task) / norm(model, loss)  # of the first step
                loss = factor * loss
            accuracies.append((output.argmax(1) == y[chosen]).float().mean())
            optimiser.zero_grad()
            (task + loss).backward()
            optimiser.step()
    return torch.stack(accuracies).reshape(len(data.y), -1).mean(1)


def norm(model, scalar):
    """The norm of the gradient of a scalar for all weights but the head's."""
    weights = [parameter for parameter in model.parameters() if parameter.dim() > 1][:-1]
    gradients = torch.autograd.grad(scalar, weights, retain_graph=True)
    return torch.cat([gradient.flatten() for gradient in gradients]).norm()


@pytest.mark.parametrize(
    "net, name, strength",
    [
        ("MLP", "plain", 1.0),
        ("MLP", "linear", 0.1),
        ("MLP", "keep_learning", 1.0),
        ("convolutions", "orthogonality", 0.3),
        ("convolutions", "share", 0.03),
    ],
)
def test_methods(net, name, strength):
    """Penalties and their strengths computed another way."""
    full = stream.make_stream(3, 2, 1)
    tasks = full._replace(order=full.order[:, :, :96])
    accuracies = stream.train(name, net, 3, strength, tasks)
    expected = train_alone(net, name, 3, strength, tasks)
    torch.testing.assert_close(torch.tensor(accuracies), expected, atol=0.011, rtol=0)  # one of 96 may round otherwise


def test_a_stream_follows_from_its_seed():
    tasks, again, other = (stream.make_stream(seed) for seed in (5, 5, 6))
    assert (tasks.x.shape, tasks.y.shape, tasks.order.shape) == ((320, 1, 8, 8), (16, 320), (16, 30, 320))
    assert all(torch.equal(a, b) for a, b in zip(tasks, again, strict=True))
    assert not torch.equal(tasks.y, other.y)
    assert torch.equal(tasks.order[7, 3].sort()[0], torch.arange(320))
    assert len(tasks.x.flatten(1).unique(dim=0)) == 320


def made_up_record(net, method, second_half, first_task=0.5, strengths=(1.0,), seeds=stream.JUDGED):
    """A record for every strength: accuracy on the first task, and over the second half of the tasks, where it rises by
    0.01 from seed to seed."""
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
    """keep_learning has an accuracy of 0.7, plus or minus 0.02 from seed to seed."""
    keep_learning = made_up_record("MLP", "keep_learning", [0.7])
    for i, by_task in enumerate(keep_learning["learned"][0]):
        by_task[8:] = [value + 0.02 * (-1) ** i for value in by_task[8:]]
    others = {"plain": plain, "orthogonality": rival, "share": share}
    records = [keep_learning, *(made_up_record("MLP", method, [value]) for method, value in others.items())]
    claims = stream.judge(records)
    assert [claim.verdict for claim in claims] == [verdict] * 3
    gains = [*(100 * (0.7 - value) + 0.4 for value in (plain, rival)), 100 * (share - 0.7) - 0.4]
    assert [claim.gain.mean for claim in claims] == pytest.approx(gains)
    with pytest.raises(ValueError, match="seeds"):
        stream.judge([*records[:2], made_up_record("MLP", "orthogonality", [0.5], seeds=(0, 1))])


def test_choosing_on_made_up_records():
    """λ is the best of those that cost little on the first task; a rival's strength is simply the best one."""
    plain = made_up_record("MLP", "plain", [0.2])
    linear = made_up_record("MLP", "linear", [0.5, 0.7, 0.9], [0.6, 0.485, 0.47], (0.01, 0.1, 1.0))
    assert stream.best_lambda(plain, linear) == 0.1
    assert stream.best_strength(linear) == 1.0
    with pytest.raises(ValueError, match="two points"):
        stream.best_lambda(plain, made_up_record("MLP", "linear", [0.9], [0.4]))


def test_finished_trainings_are_not_repeated(tmp_path, monkeypatch):
    trained = []

    def train(name, net, seed, strength, tasks):
        trained.append((seed, strength))
        return [0.25] * 16

    monkeypatch.setattr(stream, "train", train)
    first = stream.load_or_train("linear", "MLP", SEEDS, [1.0], tmp_path)
    assert stream.load_or_train("linear", "MLP", SEEDS, [1.0], tmp_path) == first
    assert trained == [(seed, 1.0) for seed in SEEDS]
    assert first["settings"] == {"mode": "linear", "weight": {"*": 1.0, "@head": 0.0}}
    stream.load_or_train("linear", "MLP", SEEDS, [1.0, 2.0], tmp_path)
    assert trained[2:] == [(seed, 1.0) for seed in SEEDS] + [(seed, 2.0) for seed in SEEDS], "not those of the record"


def test_the_published_settings_were_chosen_by_the_rule():
    published = records.read(RESULTS / "keep-learning-digits").values()
    found = {(record["net"], record["method"], record["seeds"][0]): record for record in published}
    plain, linear = (found["MLP", name, stream.CHOOSING[0]] for name in ("plain", "linear"))
    assert stream.best_lambda(plain, linear) == presets.keep_learning["weight"]["*"]
    for net in stream.NETS:
        settings = found[net, "keep_learning", 0]["settings"]
        assert settings == {**presets.keep_learning, "weight": dict(presets.keep_learning["weight"])}
        strength = stream.best_strength(found[net, "orthogonality", stream.CHOOSING[0]])
        assert found[net, "orthogonality", 0]["strengths"] == [strength]
