"""The experiments: their networks and weights, and what they say of the paper."""

from itertools import pairwise, product

import pytest
import torch
from torch import nn

from racecar_lab.experiments import EXPERIMENTS, experiment
from racecar_lab.experiments.information import WIDTHS
from racecar_lab.report.about import first_weights
from tests.lab.experiments.untrained import DIGITS, INFORMATION, PEAKS, QUICK

pytestmark = pytest.mark.usefixtures("no_data")


# Networks and stages


def test_networks():
    """As the paper has them."""

    def parts(model):
        return [
            f"{m.in_features}-{m.out_features}" if isinstance(m, nn.Linear) else type(m).__name__
            for m in model.modules()
            if not isinstance(m, (nn.Sequential, nn.Flatten))
        ]

    assert parts(DIGITS.network(QUICK)) == ["784-10"]
    after = ["BatchNorm1d", "ReLU"]
    nets = {"linear": ["784-2"], "norm": ["784-2", *after], "two": ["784-128", *after, "128-2", *after]}
    for net, expected in nets.items():
        assert parts(PEAKS.network(PEAKS.Config(nets=(net,)))) == expected
    widths = [f"{a}-{b}" for a, b in pairwise(WIDTHS)]
    expected = [part for width in widths for part in (width, "Tanh")][:-1]
    assert WIDTHS == (12, 10, 7, 5, 4, 3, 2)
    assert parts(INFORMATION.network(INFORMATION.Config())) == expected


def test_the_authors_weights():
    """λ/2 of the sum over the batch; β on σ², from one product."""
    for one, weight in ((DIGITS, 1e-5), (PEAKS, 1e-6)):
        config = one.Config()
        for name in ("RR", "lRR", "RR1"):
            assert one.weight(config, name) == weight / 2
        assert one.weight(config, "Ort") == 0.1
        assert one.reverse(config)["scale"] == "sum"
        assert one.orthogonality(config) == {"power": 1, "squared": True}
        assert config.lr == 1e-4
    assert PEAKS.Config().epochs == 5000


# What is said of the paper


def test_the_papers_figures():
    """As it prints them; the spread of RR in the first is a misprint and left out."""
    printed = {
        one.name: {(p.metric, p.stage, p.variant, p.value, p.spread) for p in one.reporting.paper}
        for one in EXPERIMENTS.values()
    }
    first = {("RR", 0.282, None), ("Std", 0.411, 0.05), ("Ort", 0.403, 0.031)}
    second = {("RR", 0.217, 0.022), ("Std", 0.500, 0.002), ("Ort", 0.495, 0.006)}
    assert printed["digits"] == {("lpips_alexnet", "A", *row) for row in first}
    assert printed["peaks"] == {("lpips_alexnet", "A", *row) for row in second}
    assert printed["mnist"] == {
        ("test_accuracy", stage, variant, value, None)
        for stage, variant, value in (
            ("A", "RR", 0.9810), ("A", "Std", 0.9827), ("A", "Ort", 0.9792), ("AA", "RR", 0.9859), ("AA", "Std", 0.9842)
        )
    }  # fmt: skip
    texture = {("Std", 0.442), ("Ort", 0.470), ("RR", 0.547)}
    assert printed["texture-shape"] == {("test_accuracy", "AA", *row, None) for row in texture}
    assert printed["information"] == set()  # it has figures there, but prints no numbers
    # "one fully connected layer, with BN and ReLU"
    assert {tuple(p.where["nets"]) for p in PEAKS.reporting.paper} == {("norm",)}
    assert "misprint" in next(p.note for p in DIGITS.reporting.paper if p.variant == "RR")


def test_claims_are_the_papers():
    """Ours is the one that is better: in every network, and on either task."""
    lab = [one for one in EXPERIMENTS.values() if not one.engine]  # streams has methods of its own
    assert {claim.better for one in lab for claim in one.claims} == {"RR", "lRR", "RR1"}
    others, nets = ("Std", "Ort"), ("linear", "norm", "two")
    assert {(c.than, c.metric) for c in DIGITS.claims} == set(product(others, ("cosine_2", "lpips_alexnet")))
    assert {(c.than, *c.where["nets"]) for c in PEAKS.claims} == set(product(others, nets))
    found = {(c.than, c.stage, c.metric) for c in INFORMATION.claims}
    assert found >= set(product(others, ("AA", "AB"), ("test_accuracy",)))


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_variants_and_the_quick_run(name):
    one = experiment(name)
    assert [one.variant(name).name for name in one.variants] == list(one.variants)
    assert {"Std", "RR1" if name == "disentangle" else "RR"} <= set(one.variants)  # which compares inputs alone
    assert one.Config(**one.quick.settings) != one.Config()


def test_unknown_experiment():
    with pytest.raises(ValueError, match="no experiment 'peak'; did you mean 'peaks'?"):
        experiment("peak")
    with pytest.raises(ValueError, match="the experiments are: digits, peaks, information"):
        experiment("xyz")


def test_first_weights_are_those_that_are_named():
    """By what they are: how large they may be, or how much they spread."""
    for one in EXPERIMENTS.values():
        for config in one.configs(one.Config(), None)[:1]:
            torch.manual_seed(0)
            weight = next(p for p in one.network(config).parameters() if p.dim() > 1)
            fan_in, fan_out = nn.init._calculate_fan_in_and_fan_out(weight)
            largest = {"PyTorch's own": fan_in**-0.5, "Glorot's, uniform": (6 / (fan_in + fan_out)) ** 0.5}
            spread = {"He's": (2 / fan_in) ** 0.5, "He's, by fan-out": (2 / fan_out) ** 0.5}
            named = first_weights(one, config)
            if named in largest:
                assert 0.9 * largest[named] < weight.abs().max() <= largest[named], one.name
            else:
                assert weight.std().item() == pytest.approx(spread[named], rel=0.1), one.name
