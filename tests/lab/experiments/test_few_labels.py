"""Few labels, in small: its data from pictures in their publishers' layouts, its settings and its networks."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from racecar import Racecar
from racecar_lab.config import choices
from racecar_lab.datasets import motion
from racecar_lab.experiments.few_labels import FewLabelsConfig, constrained_layers
from tests.lab.experiments.few_labels_cases import FEW, TINY, with_pictures

NORMS, LAYERS = choices(FewLabelsConfig)["norm"], choices(FewLabelsConfig)["layers"]


@pytest.fixture
def pictures(tmp_path, monkeypatch):
    return with_pictures(tmp_path, monkeypatch)


def as_set(x):
    return {bytes((255 * one).round().byte().numpy().tobytes()) for one in x}


# Data


@pytest.mark.parametrize("task", ["digits", "cifar"])
def test_old_and_new_classes(task, pictures):
    config = replace(TINY, task=task)
    tasks = FEW.data(config, 0, pictures)
    source = FEW.data_sets[task]
    (x, y), (test_x, test_y) = (source.load(pictures, name) for name in ("train", "test"))
    for name, old in (("A", True), ("B", False)):
        one = tasks[name]
        assert one.train.y.unique().tolist() == one.test.y.unique().tolist() == list(range(5))
        assert one.valid is None
        assert as_set(one.train.x) <= as_set(x[(y < 5) == old].float() / 255)
        assert torch.equal(one.test.x, test_x[(test_y < 5) == old].float() / 255)
        assert torch.equal(one.test.y, test_y[(test_y < 5) == old] - (0 if old else 5))
    assert len(tasks["A"].train) == 20
    assert len(tasks["B"].train) == 50


def test_blurred_pictures_are_new_ones(pictures, monkeypatch):
    """All ten classes on both sides, but no picture twice."""
    config = replace(TINY, task="blur")
    blurred = []
    monkeypatch.setattr(motion, "blur", lambda x: blurred.append(len(x)) or x)
    tasks = FEW.data(config, 0, pictures)
    assert sorted(blurred) == [40, 80]  # the new task's alone
    assert (len(tasks["A"].train), len(tasks["B"].train)) == (20, 80)
    assert not as_set(tasks["A"].train.x) & as_set(tasks["B"].train.x)
    assert tasks["B"].test.y.unique().tolist() == list(range(10))


def test_too_few_pictures(pictures):
    with pytest.raises(ValueError, match="images=51: there are 50 to train on"):
        FEW.data(replace(TINY, images=51), 0, pictures)
    with pytest.raises(ValueError, match="11 labels per class: class 5 has 10 pictures left"):
        FEW.data(replace(TINY, labels=(2, 11)), 0, pictures)
    with pytest.raises(ValueError, match="class 0 has 0 pictures left"):
        FEW.data(replace(TINY, task="blur", images=0), 0, pictures)
    assert len(FEW.data(replace(TINY, images=0), 0, pictures)["A"].train) == 50
    assert len(FEW.data(replace(TINY, tests=7), 0, pictures)["B"].test) == 7


# Networks


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("depth", [3, 6])
def test_networks(norm, depth):
    """The layers that are constrained are convolutions of the net; λ is for the mean of their terms, as it was when
    their weights made it one."""
    kinds = {"none": set(), "batch": {nn.BatchNorm2d}, "group": {nn.GroupNorm}}[norm]
    for task, layers in (*(("digits", one) for one in LAYERS), ("cifar", "all")):
        config = FEW.Config(norm=norm, depth=depth, task=task, layers=layers, reduction="mean")
        model = FEW.network(config)
        convolutions = [name for name, part in model.named_modules() if isinstance(part, nn.Conv2d)]
        assert len(convolutions) == depth
        third = depth // 3
        wanted = {"all": convolutions, "early": convolutions[:third], "late": convolutions[-third:]}[layers]
        assert constrained_layers(config) == wanted
        assert {type(p) for p in model.modules() if isinstance(p, (nn.BatchNorm2d, nn.GroupNorm))} == kinds
        assert model.classifier[-1].out_features == 5
    x = torch.rand(4, 3, 32, 32)
    rr = Racecar(model, x, mode="full", **FEW.reverse(config))
    assert [entry.name for entry in rr.plan if entry.constrained] == convolutions
    _, loss = rr(x)
    torch.testing.assert_close(loss, torch.stack(list(rr.terms.values())).mean())
    weight = {"*": 0.0, **dict.fromkeys(convolutions, 1 / depth)}
    before = Racecar(model, x, mode="full", **{**FEW.reverse(config), "weight": weight, "reduction": "sum"})
    assert torch.equal(before(x)[1], loss)


def test_first_weights_are_the_same_for_every_norm():
    found = []
    for norm in NORMS:
        torch.manual_seed(0)
        model = FEW.network(FEW.Config(norm=norm))
        found.append([part.weight for part in model.modules() if isinstance(part, nn.Conv2d)])
    for one in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(one, found[0], strict=True))


def test_first_weights():
    """He's have a variance of 2 / fan-in and no bias; PyTorch's are as they were. The rest of the net is the same."""
    nets = {}
    for start in ("torch", "he"):
        torch.manual_seed(0)
        nets[start] = FEW.network(FewLabelsConfig(start=start, task="cifar", depth=6))
    for plain, he in zip(nets["torch"].features, nets["he"].features, strict=True):
        if isinstance(he, nn.Conv2d):
            fan = he.weight[0].numel()
            assert he.weight.detach().square().mean().item() * fan == pytest.approx(2, rel=0.15)
            assert not he.bias.any()
            assert plain.weight.detach().square().mean().item() * fan == pytest.approx(1 / 3, rel=0.15)
            assert plain.bias.any()
