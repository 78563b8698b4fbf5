"""Texture against shape (Geirhos et al.): 16 classes, stylised pictures, edges and filled silhouettes.

The 1280 stylised pictures show 160 shape pictures, ten of each class, each in about eight textures; edges and
silhouettes are made from the same 160. So a random split shows a network in training what it is tested on: split by
shape picture, with ``held_out``, in all three sets. Of 80 stylised pictures shape and texture are of one class.
The folders are checked against the ids that git gives them in the authors' repository.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from racecar.lab.datasets.base import DataError, Download, File, Samples, Source, words
from racecar.support.extras import need

CLASSES = (
    "airplane", "bear", "bicycle", "bird", "boat", "bottle", "car", "cat",
    "chair", "clock", "dog", "elephant", "keyboard", "knife", "oven", "truck",
)  # fmt: skip
FOLDS = 5
"""Two of the ten shape pictures of every class are held out in each."""
REPOSITORY = "https://github.com/rgeirhos/texture-vs-shape"
COMMIT = "ccd0c01d42c0a8a834e90ec141e7f24fa915dc23"
FOLDERS = {
    "stylised": ("stimuli/style-transfer-preprocessed-512", "af5d1427fe7e6c73ad20472fef13db56d6c70d45"),
    "edges": ("stimuli/edges", "b3b178f6fc0484c02b7f9c4e96cb4be6008ac892"),
    "silhouettes": ("stimuli/filled-silhouettes", "23aee8dfaa66268e7c9746870eff68d933e88824"),
}
NAME = re.compile(r"([a-z]+)(\d+)(?:-([a-z]+)\d+)?\.png")
"""SHAPE and its number, TEXTURE and its number: cat3-dog1.png, or cat3.png without a texture."""


@dataclass(frozen=True, eq=False)
class Stimuli:
    """Pictures and what they show."""

    images: Tensor
    """uint8 (N, 3, H, W)."""
    shape: Tensor
    """int64 (N,): class of the shape."""
    texture: Tensor
    """int64 (N,): class of the texture, -1 where there is none."""
    picture: Tensor
    """int64 (N,): which shape picture of its class, 1 to 10."""

    def held_out(self, fold: int) -> Tensor:
        """bool (N,): the pictures to test on in one of five folds; none of their shapes is in the rest."""
        if not 0 <= fold < FOLDS:
            raise ValueError(f"fold must be 0 to {FOLDS - 1}, not {fold}")
        return (self.picture - 1) // 2 == fold


def stimuli(folder: str | Path | None, split: str) -> Stimuli:
    """One of the sets "stylised", "edges", "silhouettes", in the order of ``load``, with all that its names say."""
    images, shape = TEXTURE_SHAPE.load(folder, split)
    rows = TEXTURE_SHAPE.open(folder, split, lambda paths: _listed(paths[0]))
    texture, picture = (torch.tensor(column) for column in ([r[2] for r in rows], [r[1] for r in rows]))
    return Stimuli(images, shape, texture, picture)


def _listed(folder: Path) -> list[tuple[int, int, int, Path]]:
    """Class of the shape, number of its picture, class of the texture or -1, and file of every picture; sorted."""
    rows = []
    for label, name in enumerate(CLASSES):
        for path in (folder / name).glob("[!.]*.png"):
            parts = NAME.fullmatch(path.name)
            if parts is None or parts[1] != name or parts[3] not in (None, *CLASSES):
                raise DataError(f"{path} should be named {name}1.png or {name}1-TEXTURE1.png")
            rows.append((label, int(parts[2]), CLASSES.index(parts[3]) if parts[3] else -1, path))
    return sorted(rows)


def _read(paths: tuple[Path, ...], split: str) -> Samples:
    rows = _listed(paths[0])
    if not rows:
        raise DataError(f"{paths[0]} has no pictures in folders {CLASSES[0]} … {CLASSES[-1]}")
    images = [_picture(path) for *_, path in rows]
    for image, (*_, path) in zip(images, rows, strict=True):
        if image.shape != images[0].shape:
            raise DataError(f"{path} has another size than {rows[0][-1]}")
    return torch.stack(images), torch.tensor([label for label, *_ in rows])


def _picture(path: Path) -> Tensor:
    numpy, image = need("numpy", "lab"), need("PIL.Image", "lab")
    try:
        with image.open(path) as opened:
            return torch.from_numpy(numpy.array(opened.convert("RGB"))).permute(2, 0, 1)
    except (OSError, SyntaxError, ValueError) as error:
        raise DataError(f"{path} is damaged or no picture ({words(error)})") from error


TEXTURE_SHAPE = Source(
    name="texture-shape",
    title="Texture against shape, 16 classes: stylised, edges, silhouettes",
    homepage=REPOSITORY,
    licence="CC BY 4.0",
    citation="Geirhos et al.: ImageNet-trained CNNs are biased towards texture. 2019.",
    counts={"stylised": 1280, "edges": 160, "silhouettes": 160},
    forms=(
        tuple(
            File(f"texture-vs-shape/{path}", (split,), None, f"git-tree:{tree}", exact=False)
            for split, (path, tree) in FOLDERS.items()
        ),
    ),
    read=_read,
    downloads=(
        Download(
            (f"{REPOSITORY}/archive/{COMMIT}.tar.gz",),
            "texture-vs-shape.tar.gz",
            members={f"texture-vs-shape-{COMMIT}/{path}": f"texture-vs-shape/{path}" for path, _ in FOLDERS.values()},
        ),
    ),
)
