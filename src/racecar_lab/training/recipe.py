"""What a training does, in one place: its losses, the networks that take turns, augmentation, fading, looks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.nn import functional as F

from racecar_lab.config import Schedule

Loss = Callable[[Tensor, Tensor], Tensor]
"""(output, labels) → what is minimised."""
Call = Callable[..., Tensor]
"""A network as a loss calls it."""
Look = Callable[[Any, Any], Mapping[str, Tensor]]
"""(what is trained, in evaluation mode, and its task) → what is kept of it: small tensors, such as pictures."""


class Batch(NamedTuple):
    """What a step is given."""

    x: Tensor
    y: Tensor
    latent: Tensor | None = None
    """Normal numbers for every sample, where the turn asks for them."""


@dataclass(frozen=True, eq=False)
class Turn:
    """A step of one network by an optimiser of its own; the others stay as they are. Turns follow one another on the
    same batch; the same one may be listed more than once."""

    loss: Callable[[Call, Batch, Mapping[str, nn.Module]], Tensor]
    """(the network that is trained, batch, all networks by name) → what is minimised. Calls of the first one are those
    that the regulariser is of, the mean over them. A batch is all that may be random, or a resumed training would be
    another one."""
    network: str = ""
    """Which one is trained, of several; empty: the only one."""
    lr: float | None = None
    """None: as the configuration says."""
    schedule: Schedule | None = None
    """The same of how it goes."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Of Adam."""
    latent: tuple[int, ...] = ()
    """Shape of the normal numbers that ``batch.latent`` has for every sample; empty: none. (``torch.special.ndtr``
    makes uniform ones of them.)"""
    regularised: bool = True
    """Whether the variant's regulariser is that of this network, too."""
    reverse: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of ``Racecar`` for this network, instead of the experiment's."""

    def apply(self, call: Call, batch: Batch, networks: Mapping[str, nn.Module], calls: Sequence[Any]) -> Tensor:
        """The loss; ``calls`` grows with each call of the network that is trained."""
        loss = self.loss(call, batch, networks)
        if not calls:
            raise ValueError(f"the loss of network {self.network!r} never calls it: there is nothing to train")
        return loss


@dataclass(frozen=True, eq=False)
class Recipe:
    """What a training does. One network with a loss of its output and the labels needs ``loss`` alone."""

    loss: Loss = F.cross_entropy
    turns: tuple[Turn, ...] = ()
    """Instead of ``loss``: several networks, or a loss that needs more than output and labels."""
    shift: int = 0
    """In training, pictures are flipped at random and shifted by up to so many pixels; 0: left as they are."""
    flip: bool = True
    """Whether pictures that are shifted are also flipped; letters and digits should not be."""
    zoom: float = 0.0
    """In training, pictures are also made larger or smaller, by up to this share of their size."""
    symmetries: bool = False
    """In training, square pictures are also flipped and turned by quarters at random: each in one of eight ways."""
    fade: bool = False
    """Whether the coefficient falls to 0 over a training, in a straight line."""
    look: Look | None = None
    looks: int = 0
    """How often ``look`` is called during a regularised stage."""
    look_always: bool = False
    """Whether it is called in stages without regulariser, too."""
    steady: bool = False
    """Every step does the same, whatever the data: it may be recorded once and then repeated."""

    def __post_init__(self) -> None:
        if not 0 <= self.zoom < 1:
            raise ValueError(f"zoom must be in [0, 1), not {self.zoom!r}")
        if self.symmetries and (self.shift or self.zoom):
            raise ValueError("symmetries: pictures are turned, or else shifted and zoomed; leave out one of them")
        if self.steady and len(self.turns) > 1:
            raise ValueError("steady: steps of networks that take turns cannot be recorded; leave it out")
        if self.looks and self.look is None:
            raise ValueError("looks: there is no look to be taken; give look=…, too")

    def steps(self) -> tuple[Turn, ...]:
        """The turns on every batch: one, in the ordinary case."""
        return self.turns or (Turn(self._ordinary),)

    def _ordinary(self, network: Call, batch: Batch, networks: Mapping[str, nn.Module]) -> Tensor:
        return self.loss(network(batch.x), batch.y)
