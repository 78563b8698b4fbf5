"""Layer-name patterns match alike in every function, and a misspelt one is refused with a suggestion."""

from fnmatch import fnmatchcase

import pytest
import torch
from torch import nn

from racecar import Racecar
from racecar.cli.inspect.looked_at import chosen
from racecar.inspect.activations import activations
from racecar.orthogonality.weights import find
from racecar.pretrain.chosen import Chosen
from racecar.watch.names import choose

X = torch.randn(3, 4)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder, self.head = nn.Linear(4, 5), nn.Linear(5, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.head(torch.relu(self.decoder(torch.relu(self.encoder(x)))))


NAMES = ("encoder", "decoder", "head")


def by_weight(pattern):
    return [entry.name for entry in Racecar(Net(), X, weight={pattern: 1.0}).plan if entry.constrained]


def by_orthogonality(pattern):
    model = Net()
    found = [layer.weight for layer in find(model, pattern)]
    return [name for name in NAMES if any(one is getattr(model, name).weight for one in found)]


SITES = {
    "weight": by_weight,
    "orthogonality": by_orthogonality,
    "activations": lambda pattern: [one.layer for one in activations(Net(), X, pattern)],
    "pretrain": lambda pattern: list(Chosen(Net(), X, pattern).layers),
    "command line": lambda pattern: list(chosen(Racecar(Net(), X).plan, pattern)),
}


@pytest.mark.parametrize("site", SITES.values(), ids=SITES)
def test_every_site(site):
    for pattern in ("encoder", "*coder", "h*", "[de]*r", "?ncoder"):
        assert site(pattern) == [name for name in NAMES if fnmatchcase(name, pattern)], pattern
    with pytest.raises(ValueError, match=r"'decodr' matches no layer \(did you mean 'decoder'") as caught:
        site("decodr")
    message = str(caught.value)
    assert all(name in message.partition("the layers are:")[2] for name in NAMES)
    assert "\n" not in message
    with pytest.raises(ValueError, match="'zzz' matches no layer; the layers are"):
        site("zzz")


def test_choose():
    """A layer is chosen by any of its names; the result is in the order of the layers."""
    layers = [("a.0", "a"), ("b#2", "b"), ("c",)]
    assert choose(["c", "a"], layers, "layers") == [0, 2]
    assert choose([], layers, "layers") == []
    with pytest.raises(ValueError, match="layers 'x' matches no layer; the layers are: 'a.0', 'b#2', 'c'"):
        choose(["c", "x"], layers, "layers")
