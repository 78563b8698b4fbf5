"""What a trained net makes of pictures of shapes that it has not seen: by shape or by texture, and what it rebuilds."""

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
from racecar_lab.experiments.texture_shape.splitting import SHAPES, shown

SHOWN = 4
"""Pictures of the first fold that are kept, with what the net says of them and rebuilds."""
COARSE = 8
"""Height and width of a picture in which shape is left and texture is not."""
BATCH = 256
"""Pictures that are run backwards at once."""


def measured(config: TextureShapeConfig, trained: Trained, reverse: Mapping[str, Any]) -> Measured:
    """A search sees nothing but what it holds out."""
    model, task = trained.model, trained.task
    if task.valid is not None:
        return Measured({"valid_accuracy": accuracy(model, task.valid)})
    sets = {"stylised": task.test, **{name: trained.tasks[name].test.to(trained.device) for name in SHAPES}}
    said = {name: probabilities(model, split.x) for name, split in sets.items()}
    right = {name: (said[name].argmax(1) == split.y).double().cpu() for name, split in sets.items()}
    texture = trained.tasks["texture"].test.y.to(trained.device)
    back, terms = run_back(model, task.test.x, {**reverse, "scale": "relative", "fraction": 1.0}, BATCH)
    metrics = {
        "test_accuracy": float(right["stylised"].mean()),
        **{f"{name}_accuracy": float(right[name].mean()) for name in SHAPES},
        "shape_bias": shape_bias(said["stylised"].argmax(1), task.test.y, texture),
        "weights": float(sum(p.numel() for p in model.parameters() if p.dim() > 1)),
        "reverse_loss": terms,
        **alike(task.test.x, back),
    }
    arrays = {}
    if config.fold == 0 and config.split == "shape":
        some = examples(task.test.y, texture)
        arrays = {
            "d1": _bytes(task.test.x[some]),
            "rebuilt": _bytes(fitted(task.test.x[some], back[some])),
            "confidences": said["stylised"][some].float().cpu(),
            "classes": torch.stack((task.test.y[some], texture[some]), 1).cpu(),
        }
    return Measured(metrics, {"accuracy by class": by_class(right, sets)}, arrays)


@torch.no_grad()
def probabilities(model: nn.Module, x: Tensor) -> Tensor:
    """(N, …) → (N, classes)."""
    return torch.cat([model(part).softmax(1) for part in x.split(BATCH)])


def shape_bias(guess: Tensor, shape: Tensor, texture: Tensor) -> float:
    """Of the decisions for the shape's class or the texture's, the share that is for the shape's; of pictures of which
    both are the same class nothing is said. NaN if there is no such decision."""
    differ = shape != texture
    for_shape, for_texture = (int((guess == one)[differ].sum()) for one in (shape, texture))
    total = for_shape + for_texture
    return for_shape / total if total else float("nan")


def by_class(right: Mapping[str, Tensor], sets: Mapping[str, Split]) -> list[dict[str, Any]]:
    """A row for each class: the accuracy on every set."""
    rows = []
    for label, name in enumerate(CLASSES):
        own = {kind: right[kind][(split.y == label).cpu()] for kind, split in sets.items()}
        rows.append({"class": name, **{kind: float(one.mean()) for kind, one in own.items() if len(one)}})
    return rows


def alike(x: Tensor, back: Tensor) -> dict[str, float]:
    """How much of pictures x (N, 3, H, W) is in what was made of them: the mean correlation of the coarse parts, which
    show shapes, and of what is left without them, the texture."""
    coarse, fine = zip(*(parts(one.double()) for one in (x, back)), strict=True)
    return {"rebuilt_shape": _correlation(*coarse), "rebuilt_texture": _correlation(*fine)}


def parts(x: Tensor) -> tuple[Tensor, Tensor]:
    """A picture's coarse part, means of squares, and the rest."""
    coarse = F.interpolate(F.adaptive_avg_pool2d(x, COARSE), x.shape[2:])
    return coarse, x - coarse


def _correlation(a: Tensor, b: Tensor) -> float:
    """Mean over the pictures; 0 where one of them shows nothing."""
    a, b = (one.flatten(1) for one in (a, b))
    return float(F.cosine_similarity(a - a.mean(1, keepdim=True), b - b.mean(1, keepdim=True), dim=1).mean())


def fitted(x: Tensor, back: Tensor) -> Tensor:
    """What was made of pictures x (N, …), each times the number, at least 0, with which it comes nearest to its own:
    nets that never learned the size of things are shown as kindly as can be."""
    inner, size = ((one * back).flatten(1).sum(1).view(-1, 1, 1, 1) for one in (x, back))
    return back * (inner / size.clamp(min=torch.finfo(size.dtype).tiny)).clamp(min=0)


def examples(shape: Tensor, texture: Tensor) -> Tensor:
    """Indices of some pictures of which shape and texture differ, spread over the classes."""
    differ = (shape != texture).nonzero()[:, 0]
    return differ[torch.linspace(0, len(differ) - 1, SHOWN).long().to(differ.device)]


def _bytes(x: Tensor) -> Tensor:
    return (255 * shown(x.float())).round().byte().cpu()
