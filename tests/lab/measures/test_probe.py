"""The linear probe and fine-tuning, each against the same thing done another way."""

import copy
from itertools import product

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression, Ridge
from torch import nn

from racecar_lab.experiment import Split
from racecar_lab.measures.logistic import logistic
from racecar_lab.measures.probe import body, choose, features, probe_all, ridge, settle
from racecar_lab.measures.tune import tune
from racecar_lab.networks.vgg import vgg
from racecar_lab.training.rng import generator


def blobs(count, width=6, classes=3, seed=0, spread=1.0):
    """Samples around one point for each class."""
    rng = torch.Generator().manual_seed(seed)
    centres = torch.randn(classes, width, generator=torch.Generator().manual_seed(99))
    y = torch.arange(count) % classes
    return Split(centres[y] + spread * torch.randn(count, width, generator=rng), y)


def together(*splits):
    """Sets of as many samples, as one batch of them."""
    return Split(torch.stack([each.x for each in splits]), torch.stack([each.y for each in splits]))


def probe(train, test, classes, l2):
    """The accuracies of one net."""
    return probe_all([train], [test], classes, l2)[0]


def by_sklearn(x, y, l2):
    """Weights and biases of logistic regression; a feature of ones makes the bias a weight, which is penalised, too."""
    model = LogisticRegression(C=1 / (len(x) * l2), fit_intercept=False, tol=1e-10, max_iter=10_000)
    weights = model.fit(np.c_[x, np.ones(len(x))], y).coef_
    return weights[:, :-1], weights[:, -1]


def standardised(x):
    """Features with mean 0 and a mean squared length of 1, their mean, and what they were divided by."""
    mean = x.mean(0)
    scale = np.sqrt(((x - mean) ** 2).sum(1).mean())
    return (x - mean) / scale, mean, scale


@pytest.mark.parametrize("count, l2", [(3, 1e-3), (6, 1e-3), (7, 1e-3), (60, 1e-3), (60, 1e-1)])
def test_logistic_regression(count, l2):
    """The one minimum of each set, also where the samples are separable or fewer than features."""
    sets = together(blobs(count), blobs(count, seed=1, spread=0.1), blobs(count, seed=2, spread=5.0))
    weights, biases = logistic(sets.x.double(), sets.y, 3, l2)
    for x, y, weight, bias in zip(sets.x, sets.y, weights, biases, strict=True):
        wanted = by_sklearn(x.double().numpy(), y.numpy(), l2)
        np.testing.assert_allclose(weight, wanted[0], atol=2e-4)
        np.testing.assert_allclose(bias, wanted[1], atol=2e-4)
    with pytest.raises(ValueError, match="l2 must be greater than 0"):
        logistic(sets.x, sets.y, 3, 0.0)


def test_what_does_not_converge(monkeypatch):
    monkeypatch.setattr("racecar_lab.measures.logistic.LIMIT", 5)
    with pytest.raises(FloatingPointError, match="did not converge in 5 steps: l2 = 0.001 is too small"):
        logistic(blobs(6).x.double()[None], blobs(6).y[None], 3, 1e-3)


def test_the_probe_does_not_see_scale_or_place():
    train, test = together(blobs(30), blobs(30, seed=2)), blobs(300, seed=1, spread=1.5)
    result = probe(train, test, 3, 1e-3)
    assert 0.5 < float(result[0]) != float(result[1]) < 1
    for a, b in ((100.0, 0.0), (1e-3, 0.0), (1.0, 7.0)):
        moved = probe(Split(a * train.x + b, train.y), Split(a * test.x + b, test.y), 3, 1e-3)
        torch.testing.assert_close(moved, result)


def test_the_probe_by_sklearn():
    train, test = blobs(12), blobs(200, seed=1, spread=2.0)
    x, mean, scale = standardised(train.x.double().numpy())
    weight, bias = by_sklearn(x, train.y.numpy(), 1e-2)
    guess = ((test.x.double().numpy() - mean) / scale @ weight.T + bias).argmax(1)
    assert float(probe(together(train), test, 3, 1e-2)) == pytest.approx((guess == test.y.numpy()).mean())


def test_features_that_say_nothing():
    """All the same, they give a guess; not finite, no number."""
    train, test = blobs(6), blobs(30)
    sets = together(train, Split(torch.ones_like(train.x), train.y), Split(train.x / 0, train.y))
    result = probe(sets, test, 3, 1e-3)
    assert 0 <= result[1] <= 1
    assert result[2].isnan()
    assert float(result[0]) == float(probe(together(train), test, 3, 1e-3))
    assert probe(sets, Split(test.x / 0, test.y), 3, 1e-3).isnan().all()


def test_choose():
    y = torch.tensor([4, 7] * 10 + [9] * 5)
    chosen = choose(y, 5, generator(0))
    assert len(chosen.unique()) == 15
    assert {label: int((y[chosen] == label).sum()) for label in (4, 7, 9)} == {4: 5, 7: 5, 9: 5}
    assert torch.equal(chosen, choose(y, 5, generator(0)))
    assert not torch.equal(chosen, choose(y, 5, generator(1)))
    with pytest.raises(ValueError, match="class 9 has 5 samples and not the 6 labels"):
        choose(y, 6, generator(0))


@pytest.fixture
def net():
    torch.manual_seed(0)
    return vgg((4, "M", 6, "M"), size=8, channels=1, classes=3).eval()


def test_features_are_what_the_classifier_gets(net):
    x = torch.rand(300, 1, 8, 8)  # more than one batch
    result = features(body(net), x)
    assert result.shape == (300, 6 * 2 * 2)
    torch.testing.assert_close(net.classifier(result), net(x), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="Identity has no part called 'classifier'"):
        body(nn.Identity())


@pytest.mark.parametrize("norm", [False, True])
def test_tune(norm):
    """Every copy as a loop of its own does it; the nets that they start from stay as they are."""
    torch.manual_seed(0)
    nets = [vgg((4, "M", 6, "M"), size=8, channels=1, classes=3, norm=norm).double().eval() for _ in range(3)]
    few, lrs = Split(torch.rand(3, 2, 12, 1, 8, 8).double(), torch.randint(2, (3, 2, 12))), (1e-2, 1e-3)
    starts = [body(net) for net in nets]
    before = copy.deepcopy([start.state_dict() for start in starts])
    seeds = [(3, 4), (5, 6), (7, 8)]
    draw = [[generator(seed) for seed in each] for each in seeds]
    tuned = tune(starts, few, 2, steps=3, lrs=lrs, batch=8, generators=draw)
    for start, kept in zip(starts, before, strict=True):
        assert all(torch.equal(value, kept[name]) for name, value in start.state_dict().items())

    for (i, lr), (e, net), b in product(enumerate(lrs), enumerate(nets), range(2)):
        other, rng = copy.deepcopy(net).train(), generator(seeds[e][b])
        other.classifier = nn.Linear(24, 2).double()
        nn.init.zeros_(other.classifier.weight)
        nn.init.zeros_(other.classifier.bias)
        optimiser = torch.optim.Adam(other.parameters(), lr)
        for _ in range(3):
            chosen = torch.randperm(12, generator=rng)[:8]
            loss = nn.CrossEntropyLoss()(other(few.x[e, b, chosen]), few.y[e, b, chosen])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        result = tuned(i, e, b)
        assert not result.training
        torch.testing.assert_close(result(few.x[e, b]), other.eval()(few.x[e, b]))


def test_settle():
    """Batch norm has the statistics of what the layer before gives, whatever they were; momentum is as before."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3))
    x = 3 + torch.randn(200, 5)
    settle(model, x)
    torch.testing.assert_close(model[1].running_mean, model[0](x).mean(0).detach())
    torch.testing.assert_close(model[1].running_var, model[0](x).var(0).detach())
    assert model[1].momentum == 0.1
    assert not model.training


@pytest.mark.parametrize("width", [6, 40])
@pytest.mark.parametrize("l2", [1e-3, 1.0])
def test_ridge_by_sklearn(width, l2):
    sets, test = [blobs(21, width, seed=i, spread=2.0) for i in range(3)], blobs(500, width, seed=9, spread=2.0)
    train = together(*sets)
    wanted = []
    for each in sets:
        x, mean, scale = standardised(each.x.double().numpy())
        model = Ridge(alpha=len(x) * l2).fit(x, np.eye(3)[each.y.numpy()])
        guess = model.predict((test.x.double().numpy() - mean) / scale)
        wanted.append((guess.argmax(1) == test.y.numpy()).mean())
    assert ridge(train, test, 3, l2).tolist() == pytest.approx(wanted)
    moved = Split(5 + 100 * train.x, train.y), Split(5 + 100 * test.x, test.y)
    assert ridge(*moved, 3, l2).tolist() == pytest.approx(wanted, abs=0.005)
    assert min(wanted) > 0.4


def test_ridge_of_what_is_no_feature():
    """Constant features guess some class; those that are not finite have no accuracy, and leave the others theirs."""
    test = blobs(30)
    train = Split(
        torch.stack([blobs(12).x, torch.zeros(12, 6), torch.full((12, 6), torch.inf)]), blobs(12).y.expand(3, 12)
    )
    result = ridge(train, test, 3, 0.1)
    assert result[0] > 0.5
    assert result[1] == pytest.approx(1 / 3)
    assert result[2].isnan()
    with pytest.raises(ValueError, match="l2 must be greater than 0"):
        ridge(train, test, 3, 0.0)
