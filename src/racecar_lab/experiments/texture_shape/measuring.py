"""Measurement of a trained net on new shapes: accuracies, shape bias, and how well the reverse pass rebuilds inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from racecar_lab.datasets.texture_shape import CLASSES
from racecar_lab.experiment import Measured, Split, Trained, accuracy
from racecar_lab.experiments.shared import run_back
from racecar_lab.experiments.texture_shape.config import TextureShapeConfig
from racecar_lab.experiments.texture_shape.splitting import SHAPES, to_pixels

SHOWN = 4
"""Number of pictures of the first fold that are stored, with the net's outputs and their reconstructions."""
COARSE = 8
"""Height and width to which a picture is reduced to get its coarse part, in which its shape remains and its texture
does not."""
BATCH = 256
"""Number of pictures that go through a forward or reverse pass at once."""


def measure(config: TextureShapeConfig, trained: Trained, reverse: Mapping[str, Any]) -> Measured:
    """Measure a trained net on new shapes: metrics, accuracies by class and, in the first fold, pictures. A search gets
    the validation accuracy alone.

    Args:
        config: the settings of the run.
        trained: the net with its tasks.
        reverse: arguments of ``Racecar``, as for training.
    """
    model, task = trained.model, trained.task
    if task.valid is not None:
        return Measured({"valid_accuracy": accuracy(model, task.valid)})
    sets = {"stylised": task.test, **{name: trained.tasks[name].test.to(trained.device) for name in SHAPES}}
    outputs = {name: probabilities(model, split.x) for name, split in sets.items()}
    correct = {name: (outputs[name].argmax(1) == split.y).double().cpu() for name, split in sets.items()}
    texture = trained.tasks["texture"].test.y.to(trained.device)
    rebuilt, reverse_loss = run_back(model, task.test.x, {**reverse, "scale": "relative"}, BATCH)
    metrics = {
        "test_accuracy": float(correct["stylised"].mean()),
        **{f"{name}_accuracy": float(correct[name].mean()) for name in SHAPES},
        "shape_bias": shape_bias(outputs["stylised"].argmax(1), task.test.y, texture),
        "weights": float(sum(p.numel() for p in model.parameters() if p.dim() > 1)),
        "reverse_loss": reverse_loss,
        **rebuilt_correlations(task.test.x, rebuilt),
    }
    arrays = {}
    if config.fold == 0 and config.split == "shape":
        indices = examples(task.test.y, texture)
        x = task.test.x[indices]
        arrays = {
            "d1": _bytes(x),
            "rebuilt": _bytes(scaled_to_fit(x, rebuilt[indices])),
            "confidences": outputs["stylised"][indices].float().cpu(),
            "classes": torch.stack((task.test.y[indices], texture[indices]), 1).cpu(),
        }
    return Measured(metrics, {"accuracy by class": by_class(correct, sets)}, arrays)


@torch.no_grad()
def probabilities(model: nn.Module, x: Tensor) -> Tensor:
    """Probabilities of the classes, computed in batches: (N, …) → (N, classes)."""
    return torch.cat([model(part).softmax(1) for part in x.split(BATCH)])


def shape_bias(guess: Tensor, shape: Tensor, texture: Tensor) -> float:
    """Shape bias of guessed classes: of the guesses that are the class of the shape or of the texture, the share that
    is the shape's. Pictures whose shape and texture have the same class are left out; NaN if no guess remains."""
    differ = shape != texture
    for_shape, for_texture = (int((guess == label)[differ].sum()) for label in (shape, texture))
    total = for_shape + for_texture
    return for_shape / total if total else float("nan")


def by_class(correct: Mapping[str, Tensor], sets: Mapping[str, Split]) -> list[dict[str, Any]]:
    """Table with a row for each class and its accuracy on every set that has pictures of it.

    Args:
        correct: name of a set → 1 for each sample that is classified correctly, otherwise 0, (N,).
        sets: name of a set → its samples.
    """
    rows = []
    for label, class_name in enumerate(CLASSES):
        of_class = {name: correct[name][(split.y == label).cpu()] for name, split in sets.items()}
        accuracies = {name: float(values.mean()) for name, values in of_class.items() if len(values)}
        rows.append({"class": class_name, **accuracies})
    return rows


def rebuilt_correlations(x: Tensor, rebuilt: Tensor) -> dict[str, float]:
    """Mean correlations of pictures x (N, 3, H, W) with the rebuilt ones: "rebuilt_shape" of their coarse parts, which
    show shapes, and "rebuilt_texture" of the rest, the texture."""
    coarse, fine = zip(*(coarse_and_fine(pictures.double()) for pictures in (x, rebuilt)), strict=True)
    return {"rebuilt_shape": _correlation(*coarse), "rebuilt_texture": _correlation(*fine)}


def coarse_and_fine(x: Tensor) -> tuple[Tensor, Tensor]:
    """Split pictures (N, C, H, W) into a coarse part, means over squares of pixels, and the rest."""
    coarse = F.interpolate(F.adaptive_avg_pool2d(x, COARSE), x.shape[2:])
    return coarse, x - coarse


def _correlation(a: Tensor, b: Tensor) -> float:
    """Mean correlation over pairs of pictures, from ``a`` and ``b``; 0 for a pair with a constant picture."""
    a, b = a.flatten(1), b.flatten(1)
    return float(F.cosine_similarity(a - a.mean(1, keepdim=True), b - b.mean(1, keepdim=True), dim=1).mean())


def scaled_to_fit(x: Tensor, rebuilt: Tensor) -> Tensor:
    """Rebuilt pictures, each times the number ≥ 0 that brings it nearest to its picture in x (N, 3, H, W), so that
    nets that never learned the scale of their inputs are shown at their best."""
    inner, size = ((pictures * rebuilt).flatten(1).sum(1).view(-1, 1, 1, 1) for pictures in (x, rebuilt))
    return rebuilt * (inner / size.clamp(min=torch.finfo(size.dtype).tiny)).clamp(min=0)


def examples(shape: Tensor, texture: Tensor) -> Tensor:
    """Indices of the ``SHOWN`` pictures that are stored: their shape and texture have different classes, and they are
    spread over all such pictures."""
    differ = (shape != texture).nonzero()[:, 0]
    return differ[torch.linspace(0, len(differ) - 1, SHOWN).long().to(differ.device)]


def _bytes(x: Tensor) -> Tensor:
    """Turn normalised inputs of the net back into pictures, uint8."""
    return (255 * to_pixels(x.float())).round().byte().cpu()
