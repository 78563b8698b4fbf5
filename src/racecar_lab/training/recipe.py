"""A recipe says how a training is done: losses, networks that take turns, augmentation, snapshots."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.nn import functional as F

from racecar_lab.config import Schedule

Loss = Callable[[Tensor, Tensor], Tensor]
"""A loss function: (output, labels) → the minimised loss, a scalar."""
Call = Callable[..., Tensor]
"""A network as it is passed to a loss: called with inputs, it returns the network's output."""
Look = Callable[[Any, Any], Mapping[str, Tensor]]
"""A function that takes a snapshot of a model: (model in evaluation mode, its data) → small tensors by name, such as
pictures."""


class Batch(NamedTuple):
    """The samples, labels and random numbers from which a loss is computed in a step."""

    x: Tensor
    y: Tensor
    latent: Tensor | None = None
    """Normal random numbers (N, …); None if the turn asks for none."""


@dataclass(frozen=True, eq=False)
class Turn:
    """A step of one network by its own optimiser, while the other networks stay as they are. The turns of a recipe
    follow one another on the same batch; a turn may be listed more than once."""

    loss: Callable[[Call, Batch, Mapping[str, nn.Module]], Tensor]
    """(the trained network, batch, all networks by name) → the minimised loss. The regulariser is the mean over the
    calls of the first argument. The loss draws no random numbers but those of the batch: otherwise a resumed training
    would differ from one that was not interrupted."""
    network: str = ""
    """Name of the trained network; empty if there is only one."""
    lr: float | None = None
    """Learning rate of the turn's optimiser; None: that of the configuration."""
    schedule: Schedule | None = None
    """Learning-rate schedule of the turn's optimiser; None: that of the configuration."""
    betas: tuple[float, float] = (0.9, 0.999)
    """The two decay rates of the turn's optimiser, if it is Adam."""
    latent: tuple[int, ...] = ()
    """Shape, per sample, of the normal random numbers that the loss gets as ``batch.latent``; empty: none.
    ``torch.special.ndtr`` makes them uniform."""
    regularised: bool = True
    """True if the variant's regulariser applies to the network that the turn trains."""
    reverse: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of ``Racecar`` for this network; they take precedence over the experiment's."""


@dataclass(frozen=True, eq=False)
class Recipe:
    """Losses, augmentation and snapshots of a training. One network with a loss of its output and the labels needs only
    ``loss``."""

    loss: Loss = F.cross_entropy
    turns: tuple[Turn, ...] = ()
    """Turns on every batch, instead of ``loss``: for several networks, or a loss of more than output and labels."""
    shift: int = 0
    """Maximal number of pixels by which training pictures are shifted at random; 0: they are not shifted."""
    flip: bool = True
    """True if training pictures that are shifted or zoomed are also flipped left to right at random; it should be False
    for letters and digits."""
    zoom: float = 0.0
    """Share of their size by which training pictures are enlarged or reduced at most, at random; 0: they are not."""
    symmetries: bool = False
    """True if training pictures, which must be square, are flipped and rotated by multiples of 90° at random: each in
    one of eight ways."""
    fade: bool = False
    """True if the regulariser's λ falls linearly to 0 over the training."""
    look: Look | None = None
    """A function that takes a snapshot of the model, small tensors such as pictures, during training; None: there are
    no snapshots."""
    looks: int = 0
    """Number of times that ``look`` takes a snapshot of the model, at equal distances from the first step on; one more
    is taken at the end. 0: none at all."""
    look_always: bool = False
    """True if ``look`` takes snapshots in every stage; False: only in stages with a regulariser."""
    steady: bool = False
    """True if every step does the same operations, whatever the data: a step may then be recorded once and repeated."""

    def __post_init__(self) -> None:
        if not 0 <= self.zoom < 1:
            raise ValueError(f"zoom must be in [0, 1), not {self.zoom!r}")
        if self.symmetries and (self.shift or self.zoom):
            raise ValueError("symmetries: pictures are turned, or else shifted and zoomed; leave out one of them")
        if self.steady and len(self.turns) > 1:
            raise ValueError("steady: steps of networks that take turns cannot be recorded; leave it out")
        if self.looks and self.look is None:
            raise ValueError("looks: there is no look to be taken; give look=…, too")

    def all_turns(self) -> tuple[Turn, ...]:
        """The turns on every batch; a recipe that has ``loss`` instead of turns has one."""
        return self.turns or (Turn(self._loss_of_batch),)

    def _loss_of_batch(self, network: Call, batch: Batch, networks: Mapping[str, nn.Module]) -> Tensor:
        return self.loss(network(batch.x), batch.y)
