"""Texture against shape (Geirhos et al.): 16 classes, stylised pictures, edges and filled silhouettes.

The 1280 stylised pictures show 160 shape pictures, ten of each class, each in about eight textures; edges and
silhouettes are made from the same 160. With a random split, a network would be tested on shapes that it was trained on:
split by shape picture, with ``held_out``, in all three sets. In 80 stylised pictures, shape and texture have the same
class. The folders are compared with their ids in the authors' git repository. The same pictures at 64 pixels may also
be in one file, texture_shape_64.npz.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from racecar.support.extras import need
from racecar_lab.datasets.arrays import channels_first, read_npz
from racecar_lab.datasets.base import DataError, Download, File, Source, reading

CLASSES = (
    "airplane", "bear", "bicycle", "bird", "boat", "bottle", "car", "cat",
    "chair", "clock", "dog", "elephant", "keyboard", "knife", "oven", "truck",
)  # fmt: skip
FOLDS = 5
"""Number of folds; each holds out two of the ten shape pictures of every class."""
REPOSITORY = "https://github.com/rgeirhos/texture-vs-shape"
COMMIT = "ccd0c01d42c0a8a834e90ec141e7f24fa915dc23"
FOLDERS = {
    "stylised": ("stimuli/style-transfer-preprocessed-512", "af5d1427fe7e6c73ad20472fef13db56d6c70d45"),
    "edges": ("stimuli/edges", "b3b178f6fc0484c02b7f9c4e96cb4be6008ac892"),
    "silhouettes": ("stimuli/filled-silhouettes", "23aee8dfaa66268e7c9746870eff68d933e88824"),
}
PACKED = "texture_shape_64.npz"
"""Name of the file that has all pictures at 64 × 64 pixels."""
KINDS = {"stylised": "stylized", "edges": "edges", "silhouettes": "filled-silhouettes"}
"""Split → its name in the file that has all pictures."""
NAME = re.compile(r"([a-z]+)(\d+)(?:-([a-z]+)\d+)?\.png")
"""Names of pictures: shape and its number, texture and its number. cat3-dog1.png shows the third cat in the texture of
the first dog; cat3.png has no texture. The part before the hyphen names the shape picture."""


@dataclass(frozen=True, eq=False)
class Stimuli:
    """A set of pictures, each with the class of its shape and that of its texture."""

    images: Tensor
    """The pictures, uint8 (N, 3, H, W)."""
    shape: Tensor
    """Class of each picture's shape, int64 (N,)."""
    texture: Tensor
    """Class of each picture's texture, int64 (N,); -1 where there is none."""
    picture: Tensor
    """Number, from 1 to 10, of the shape picture among those of its class that each picture shows, int64 (N,)."""

    def held_out(self, fold: int) -> Tensor:
        """For each picture, True if it is a test picture of a fold, (N,). No training picture of the fold has its shape
        from the same source picture as a test picture."""
        if not 0 <= fold < FOLDS:
            raise ValueError(f"fold must be 0 to {FOLDS - 1}, not {fold}")
        return (self.picture - 1) // 2 == fold


def stimuli(folder: str | Path | None, split: str) -> Stimuli:
    """Read one of the sets "stylised", "edges" and "silhouettes".

    Args:
        folder: the data folder; None: the default, see ``data_folder``.
        split: name of the set.
    """
    return Stimuli(*TEXTURE_SHAPE.columns(folder, split))


def _read(paths: tuple[Path, ...], split: str) -> tuple[Tensor, ...]:
    """The fields of ``Stimuli``: pictures, class of the shape, class of the texture, number of the shape picture. The
    order is that of shape, number, texture and file name."""
    (path,) = paths
    if path.name == PACKED:
        names = ("x", "kind", "kind_names", "file_name", "shape_label", "class_names")
        x, kind, kinds, file_names, shapes, classes = read_npz(path, *names)
        chosen = kind == list(kinds).index(KINDS[split])
        files = [path / classes[i] / name for i, name in zip(shapes[chosen], file_names[chosen], strict=True)]
        images = channels_first(x[chosen], path)
    else:
        files = [file for name in CLASSES for file in (path / name).glob("[!.]*.png")]
        images = _pictures(files)
    if not files:
        raise DataError(f"{path} has no {split} pictures")
    rows = [(*_parts(file), file.name, i) for i, file in enumerate(files)]
    shape, picture, texture, _, order = zip(*sorted(rows), strict=True)
    return images[list(order)], torch.tensor(shape), torch.tensor(texture), torch.tensor(picture)


def _parts(file: Path) -> tuple[int, int, int]:
    """Class of the shape, number of the shape picture, and class of the texture or -1, from the name of a picture."""
    shape, parts = file.parent.name, NAME.fullmatch(file.name)
    if parts is None or parts[1] != shape or parts[3] not in (None, *CLASSES):
        raise DataError(f"{file} should be named {shape}1.png or {shape}1-TEXTURE1.png")
    return CLASSES.index(shape), int(parts[2]), CLASSES.index(parts[3]) if parts[3] else -1


def _pictures(files: Sequence[Path]) -> Tensor:
    """Read picture files, which must all have one size, as uint8 (N, 3, H, W)."""
    numpy, image = need("numpy", "lab"), need("PIL.Image", "lab")
    images = []
    for file in files:
        with reading(file, "picture"), image.open(file) as opened:
            images.append(torch.from_numpy(numpy.array(opened.convert("RGB"))).permute(2, 0, 1))
        if images[-1].shape != images[0].shape:
            raise DataError(f"{file} has another size than {files[0]}")
    return torch.stack(images) if images else torch.empty(0)


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
        (
            File(
                PACKED,
                tuple(KINDS),
                14_650_189,
                "sha256:d39ba0e5309ef6c6cce960497b956cc340245877a2bf84d569cfbc58af5a14fe",
            ),
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
