"""What the tests of pretraining share: small models and data, loaders that watch or stop, and layers by hand."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.by_hand import Layer, chain, undo_linear

State = dict[str, Tensor]


def rows(count: int = 3, size: int = 5, width: int = 6) -> list[Tensor]:
    drawn = torch.Generator().manual_seed(1)
    return [torch.randn(size, width, generator=drawn, dtype=torch.float64) for _ in range(count)]


def pictures(count: int = 3, channels: int = 1, side: int = 8) -> list[Tensor]:
    drawn = torch.Generator().manual_seed(1)
    return [torch.rand(4, channels, side, side, generator=drawn, dtype=torch.float64) for _ in range(count)]


def seeded(build: Callable[[], Any]) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return build().double()


def mlp() -> nn.Sequential:
    return seeded(lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 5), nn.Tanh(), nn.Linear(5, 3)))


def deep() -> nn.Sequential:
    """Four layers in float32, with batch norm."""
    torch.manual_seed(3)
    parts: list[nn.Module] = []
    for inputs, outputs in ((6, 8), (8, 7), (7, 5), (5, 3)):
        parts += [nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs), nn.Tanh()]
    return nn.Sequential(*parts)


def state(model: nn.Module) -> State:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def same(one: State, other: State) -> bool:
    """Bit for bit."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def moved(before: State, after: State) -> set[str]:
    return {name for name in before if not torch.equal(before[name], after[name])}


class Watching:
    """A loader that keeps the model's state at the start of every pass through it, and at every batch."""

    def __init__(self, model: nn.Module, batches: Sequence[Any]) -> None:
        self.model, self.batches = model, batches
        self.states: list[State] = []
        self.flags: list[set[str]] = []
        self.training: list[dict[str, bool]] = []

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Any]:
        self.states.append(state(self.model))
        for batch in self.batches:
            self.flags.append({name for name, one in self.model.named_parameters() if one.requires_grad})
            self.training.append({name: module.training for name, module in self.model.named_modules()})
            yield batch

    def moved(self) -> list[set[str]]:
        """What changed in each pass; the first one is only the look at an example."""
        return [moved(*pair) for pair in pairwise([*self.states[1:], state(self.model)])]


def mlp_layers(net: nn.Module, x: Tensor) -> list[Layer]:
    d2 = torch.tanh(F.linear(x, net[0].weight, net[0].bias))
    d3 = torch.tanh(F.linear(d2, net[2].weight, net[2].bias))
    d4 = F.linear(d3, net[4].weight, net[4].bias)
    backs = (
        lambda y: undo_linear(net[0], y),
        lambda y: torch.tanh(undo_linear(net[2], y)),
        lambda y: torch.tanh(undo_linear(net[4], y)),
    )
    return chain(("0", "2", "4"), (x, d2, d3, d4), backs)


def normed() -> nn.Sequential:
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(1, 4, 3, padding=1),
            bn1=nn.BatchNorm2d(4),
            relu=nn.ReLU(inplace=True),
            drop=nn.Dropout(0.5),
            pool=nn.MaxPool2d(2),
            conv2=nn.Conv2d(4, 5, 3, padding=1, bias=False),
            bn2=nn.BatchNorm2d(5),
            tanh=nn.Tanh(),
        )
    )


class Stop(Exception):
    pass


def stop() -> None:
    raise Stop


class Interrupted:
    """A loader that stops in batch ``after``, counted from 0 over all passes through it."""

    def __init__(self, loader: Iterable[Any], after: int, fail: Callable[[], Any] = stop) -> None:
        self.loader, self.left, self.fail = loader, after, fail

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)

    def __iter__(self) -> Iterator[Any]:
        return self.through(iter(self.loader))  # at once, as without us: a DataLoader draws a random number here

    def through(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            if not self.left:
                self.fail()
            self.left -= 1
            yield batch


class Once:
    """An iterable that is empty from the second pass on."""

    def __init__(self, batches: list[Tensor], passes: int) -> None:
        self.batches, self.passes = batches, passes

    def __iter__(self) -> Iterator[Tensor]:
        self.passes -= 1
        return iter(self.batches if self.passes >= 0 else [])
