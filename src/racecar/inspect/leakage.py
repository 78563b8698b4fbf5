"""How much of its input a network gives away: the reverse pass as a measure of privacy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor, nn

from racecar.inspect.invertibility import (
    NO_SSIM,
    Invertibility,
    finite,
    invertibility,
    is_pictures,
    number,
    picture_scores,
)
from racecar.support.table import table
from racecar.watch.batches import ExampleInputs
from racecar.watch.names import shown

READINGS = (
    (0.9, "nearly everything: handle these activations as the inputs themselves"),
    (0.5, "much: what the input shows can be recognised"),
    (0.1, "some: coarse structure shows through"),
    (0.0, "little that this reverse pass can show"),
)
"""From which share of the input's variation on a sentence holds."""
UNKNOWN = "nothing can be said: the reverse pass is not finite"


@dataclass(frozen=True)
class Leak:
    """What the reverse pass gives back of the input from one depth."""

    name: str
    """"d2", "d3", …: the activation that the input was rebuilt from."""
    layer: str
    """The layer that made it."""
    explained: float
    """Share of the input's variation that comes back, 1 − Σ(x − x')² / Σ(x − x̄)², with x̄ the best constant image. It is
    negative where the constant image is closer than what came back."""
    adjusted: float
    """The same once brightness and contrast of what came back are set right: the squared correlation, in [0, 1]."""
    psnr: float | None
    ssim: float | None
    reading: str


@dataclass(frozen=True, eq=False)
class Leakage:
    """How much of the input each depth gives back. Iterable; printable as a table with a reading in plain words."""

    leaks: tuple[Leak, ...]
    constant_psnr: float | None
    """Of the best constant image: each input's own mean colour."""
    constant_ssim: float | None
    hidden: tuple[str, ...]
    """Layers from which the reverse pass to the input is not unique; nothing is said about them."""

    def __iter__(self) -> Iterator[Leak]:
        return iter(self.leaks)

    def __len__(self) -> int:
        return len(self.leaks)

    @property
    def reading(self) -> str:
        """The outcome in plain words."""
        if not self.leaks:
            return "From no depth is the reverse pass to the input unique, so it says nothing here."
        last = self.leaks[-1]
        text = f"From {last.name}, the output of {last.layer or 'the model'}, the reverse pass gives back "
        text += f"{last.adjusted:.0%} of the input's variation. "
        open_ = [leak for leak in self.leaks if leak.adjusted >= READINGS[1][0]]
        if open_:
            text += f"Inputs can be recognised from activations as deep as {open_[-1].name}: store and share them with "
            text += "the same care as the inputs. "
        else:
            text += "No depth gives back as much as half of it. "
        text += "This is a lower bound: a stronger attack may find more"
        hidden = f"{len(self.hidden)} layer{'s' if len(self.hidden) > 1 else ''}"
        return text + (f"; nothing is known of {hidden} without a unique reverse pass." if self.hidden else ".")

    def __str__(self) -> str:
        head = ["from", "made by", "explained", "adjusted", "PSNR", "SSIM", "reading"]
        rows = [
            [
                leak.name,
                shown(leak.layer),
                f"{leak.explained:.1%}" if leak.explained > -10 else "below -999%",
                f"{leak.adjusted:.1%}",
                number(leak.psnr),
                number(leak.ssim),
                leak.reading,
            ]
            for leak in self.leaks
        ]
        flat = number(self.constant_psnr), number(self.constant_ssim)
        rows.append(["-", "best constant image", "0.0%", "0.0%", *flat, ""])
        small = self.constant_psnr is not None and self.constant_ssim is None
        return "\n".join([table(head, rows), *([NO_SSIM] if small else []), self.reading])

    def to_dict(self) -> dict[str, Any]:
        """The numbers, ready for JSON."""
        return {
            "reading": self.reading,
            "constant": finite({"psnr": self.constant_psnr, "ssim": self.constant_ssim}),
            "hidden": list(self.hidden),
            "depths": [finite(asdict(leak)) for leak in self.leaks],
        }


def leakage(
    model: nn.Module,
    inputs: ExampleInputs | Invertibility,
    **options: Any,
) -> Leakage:
    """How much of its input each depth of a model gives back through the reverse pass.

    Representations that rebuild their input well are good features, and a risk where inputs are private: whoever holds
    an activation and the weights can run the same reverse pass.

    Args:
        model: any model that Racecar can plan, or a Racecar.
        inputs: as for :func:`invertibility`, or its result on the same model.
        options: of :func:`invertibility`.

    Returns:
        For each depth how much better the rebuilt input is than the best constant image (each input's mean colour).
    """
    if isinstance(inputs, Invertibility) and options:
        raise TypeError(f"{', '.join(options)} cannot be given with an invertibility that was measured already")
    found = inputs if isinstance(inputs, Invertibility) else invertibility(model, inputs, **options)
    x = found.inputs.double()
    flat = _constant(x)
    leaks = []
    for depth in found:
        name = f"d{int(depth.name[1:]) + 1}"
        if name not in found.rebuilt:
            continue
        back = found.rebuilt[name].double()
        explained = 1 - _share((x - back).square().sum(), (x - flat).square().sum())
        adjusted = min(_correlation(x - flat, back - _constant(back)) ** 2, 1.0)
        leaks.append(Leak(name, depth.layer, explained, adjusted, depth.psnr, depth.ssim, _reading(adjusted)))
    flat_psnr, flat_ssim = picture_scores(flat, x, found.range) if is_pictures(x) else (None, None)
    return Leakage(tuple(leaks), flat_psnr, flat_ssim, tuple(depth.layer for depth in found if depth.input is None))


def _constant(x: Tensor) -> Tensor:
    """Each input's own mean: of every channel for pictures, of all its features otherwise."""
    if x.dim() < 2:
        return x.mean().expand_as(x)
    return x.mean(tuple(range(2 if x.dim() == 4 else 1, x.dim())), keepdim=True).expand_as(x)


def _share(part: Tensor, whole: Tensor) -> float:
    return float(part / whole) if whole > 0 else float(part > 0)


def _correlation(a: Tensor, b: Tensor) -> float:
    size = a.norm() * b.norm()
    return float((a * b).sum() / size) if size != 0 else 0.0


def _reading(adjusted: float) -> str:
    return next((text for share, text in READINGS if adjusted >= share), UNKNOWN)
