"""How much of its input a network's activations reveal: the reverse pass as a measure of privacy."""

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
"""(least share of the input's variation that is rebuilt, what that means in words), largest share first."""
UNKNOWN = "nothing can be said: the reverse pass is not finite"


@dataclass(frozen=True)
class Leak:
    """How much of the input one activation reveals: scores of the input x' rebuilt from it against the true input x."""

    name: str
    """"d2", "d3", …: the activation that the input was rebuilt from."""
    layer: str
    """The layer whose output that activation is."""
    explained: float
    """Share of the input's variance that x' explains, 1 − Σ(x − x')² / Σ(x − x̄)², with x̄ the best constant image;
    negative if x̄ is closer to x than x' is."""
    adjusted: float
    """Share explained after the best change of brightness and contrast of x': the squared correlation of x and x'."""
    psnr: float | None
    """PSNR of x' in decibel, mean over the samples; None if they are not pictures."""
    ssim: float | None
    """SSIM of x', mean over the samples; None if they are not pictures, or too small ones."""
    reading: str
    """Sentence that says what ``adjusted`` means."""


@dataclass(frozen=True, eq=False)
class Leakage:
    """How much of the input each activation of a model reveals. Iterable; prints as a table with a sentence below."""

    leaks: tuple[Leak, ...]
    """One entry for each activation from which the input can be rebuilt, from the first layer to the last."""
    constant_psnr: float | None
    """PSNR of the best constant image (each input's mean colour), to compare with; None if inputs are not pictures."""
    constant_ssim: float | None
    """SSIM of the best constant image; None if inputs are not pictures, or too small ones."""
    hidden: tuple[str, ...]
    """Layers that are not measured, because the reverse pass from them to the input is not unique."""

    def __iter__(self) -> Iterator[Leak]:
        return iter(self.leaks)

    def __len__(self) -> int:
        return len(self.leaks)

    @property
    def reading(self) -> str:
        """The result in two or three sentences."""
        if not self.leaks:
            return "From no depth is the reverse pass to the input unique, so it says nothing here."
        last = self.leaks[-1]
        text = f"From {last.name}, the output of {last.layer or 'the model'}, the reverse pass gives back "
        text += f"{last.adjusted:.0%} of the input's variation. "
        recognisable = [leak for leak in self.leaks if leak.adjusted >= READINGS[1][0]]
        if recognisable:
            deepest = recognisable[-1].name
            text += f"Inputs can be recognised from activations as deep as {deepest}: store and share them with "
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
        constant = number(self.constant_psnr), number(self.constant_ssim)
        rows.append(["-", "best constant image", "0.0%", "0.0%", *constant, ""])
        small = self.constant_psnr is not None and self.constant_ssim is None
        return "\n".join([table(head, rows), *([NO_SSIM] if small else []), self.reading])

    def to_dict(self) -> dict[str, Any]:
        """The numbers and the sentences as a dict for JSON."""
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
    """Measure how much of its input each activation of a model reveals through the reverse pass.

    Activations from which the input can be rebuilt are good features, and a risk where inputs are private: whoever has
    an activation and the weights can run the same reverse pass.

    Args:
        model: any model that Racecar can plan, or a Racecar.
        inputs: as for :func:`invertibility`, or its result on the same model.
        options: keyword arguments for :func:`invertibility`.

    Returns:
        For each activation how much closer the rebuilt input is than the best constant image, each input's mean colour.
    """
    if isinstance(inputs, Invertibility) and options:
        raise TypeError(f"{', '.join(options)} cannot be given with an invertibility that was measured already")
    measured = inputs if isinstance(inputs, Invertibility) else invertibility(model, inputs, **options)
    x = measured.inputs.double()
    constant = _constant(x)
    leaks = []
    for depth in measured:
        name = f"d{int(depth.name[1:]) + 1}"
        if name not in measured.rebuilt:
            continue
        rebuilt = measured.rebuilt[name].double()
        explained = 1 - _share((x - rebuilt).square().sum(), (x - constant).square().sum())
        adjusted = min(_correlation(x - constant, rebuilt - _constant(rebuilt)) ** 2, 1.0)
        leaks.append(Leak(name, depth.layer, explained, adjusted, depth.psnr, depth.ssim, _reading(adjusted)))
    psnr, ssim = picture_scores(constant, x, measured.range) if is_pictures(x) else (None, None)
    return Leakage(tuple(leaks), psnr, ssim, tuple(depth.layer for depth in measured if depth.input is None))


def _constant(x: Tensor) -> Tensor:
    """The best constant image: each sample's mean, per channel for (N, C, H, W), else over all features; x's shape."""
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
