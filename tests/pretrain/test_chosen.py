"""Which layers are pretrained, and which parameters belong to each."""

import copy
from collections import OrderedDict
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from racecar.pretrain import greedy
from tests.networks import NETWORKS
from tests.pretrain.common import Watching, mlp, rows, same, seeded, state


def test_prelu_belongs_to_its_layer():
    """A weight between a layer's operation and d_(m+1) is part of the encoder."""
    model = seeded(lambda: nn.Sequential(nn.Linear(6, 5), nn.PReLU(), nn.Linear(5, 3)))
    watching = Watching(model, rows())
    greedy(model, watching)
    assert watching.moved() == [{"0.weight", "0.bias", "1.weight"}, {"2.weight"}]


@pytest.mark.parametrize("name", ["reused", "tied", "tied_autoencoder"])
def test_a_parameter_with_several_uses_is_trained_once(name: str):
    """Trained again by a later use, it would no longer fit the first one: greedy goes from the input up."""
    model, inputs = NETWORKS[name]()
    names = {id(one): key for key, one in model.named_parameters()}
    given: list[str] = []

    def optimiser(own):
        given.extend(names[id(one)] for one in own)
        return torch.optim.Adam(own, 1e-3)

    greedy(model, [inputs] * 2, optimiser=optimiser)
    assert sorted(given) == sorted(set(given))


def test_a_reused_layer_is_one_layer():
    model, inputs = NETWORKS["reused"]()
    assert [one.layer for one in greedy(model, [inputs] * 2)] == ["first", "step", "last"]


@pytest.mark.parametrize("kind", ["transposed", "scaled", "sliced"])
def test_weights_that_are_computed_from_a_parameter(kind: str):
    """All parameters lie in one module, and still every layer is trained, with its own weight alone."""

    class Bare(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Parameter(torch.randn(8, 8) / 4), nn.Parameter(torch.randn(8, 8) / 4)

        def forward(self, x):
            turn = {"transposed": lambda w: w.t(), "scaled": lambda w: w * 0.5, "sliced": lambda w: w[:7]}[kind]
            h = torch.tanh(F.linear(x, turn(self.a)))
            return F.linear(F.pad(h, (0, 8 - h.shape[1])), turn(self.b))

    model = seeded(Bare)
    watching = Watching(model, rows(2, width=8))
    done = greedy(model, watching)
    assert [one.layer for one in done] == ["a", "b"]
    assert watching.moved() == [{"a"}, {"b"}]


def test_a_model_that_is_one_layer():
    model = seeded(lambda: nn.Linear(6, 4))
    (one,) = greedy(model, rows(), epochs=20, lr=1e-2)
    assert one.layer == ""
    assert one.last < one.first


@pytest.mark.parametrize("names", [("a[0]", "b[1]"), ("*", "a"), ("?", "a"), ("[!x]", "a")])
def test_names_that_look_like_patterns(names: tuple[str, str]):
    def build():
        parts = [(names[0], nn.Linear(6, 8)), ("t", nn.Tanh()), (names[1], nn.Linear(8, 3))]
        return nn.Sequential(OrderedDict(parts))

    model = seeded(build)
    watching = Watching(model, rows())
    truth = copy.deepcopy(nn.Sequential(*model))
    done = greedy(model, watching)
    assert [one.layer for one in done] == list(names)
    greedy(truth, rows())
    assert all(torch.equal(*pair) for pair in zip(model.parameters(), truth.parameters(), strict=True))


@pytest.mark.parametrize(
    "patterns, layers",
    [
        (None, ["features.0", "features.3", "features.7", "features.10", "classifier"]),
        ("features.*", ["features.0", "features.3", "features.7", "features.10"]),
        (["classifier", "features.0"], ["features.0", "classifier"]),
        (("*.[37]",), ["features.3", "features.7"]),
        ("*", ["features.0", "features.3", "features.7", "features.10", "classifier"]),
    ],
)
def test_layers_by_pattern(patterns: Any, layers: list[str]):
    model, inputs = NETWORKS["vgg"]()
    watching = Watching(model, [inputs])
    assert [one.layer for one in greedy(model, watching, layers=patterns)] == layers
    for name, changed in zip(layers, watching.moved(), strict=True):
        assert {key.rpartition(".")[0] for key in changed if changed and key.endswith(".weight")} >= {name}


@pytest.mark.parametrize("patterns", ["nothing*", ["nothing", "else"], [], "1", ["0", "misspelt"]])
def test_a_pattern_that_matches_nothing_is_refused(patterns: Any):
    """Each of them, as for the weight of a Racecar: a misspelt one would go unnoticed."""
    model = mlp()
    before = state(model)
    with pytest.raises(ValueError, match="'0', '2', '4'") as caught:
        greedy(model, rows(), layers=patterns)
    assert "\n" not in str(caught.value)
    assert same(before, state(model))
