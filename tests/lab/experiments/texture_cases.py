"""Texture against shape, very small: ten shape pictures of each class, each in some textures, in either layout."""

from dataclasses import replace

import numpy as np
from PIL import Image

from racecar_lab.datasets import texture_shape
from racecar_lab.datasets.texture_shape import CLASSES, FOLDERS, KINDS, PACKED
from racecar_lab.experiments import experiment
from racecar_lab.experiments.texture_shape import splitting

TEXTURE = experiment("texture-shape")
TINY = TEXTURE.Config(images=128, size=8, widths=(2, 3, 4), epochs=1, finetune=1, batch=64, cost=1.0, slim=1.0)


def names(split):
    """Class and file of every picture; shape pictures have three textures or four, one of which may be their own."""
    for label, shape in enumerate(CLASSES):
        for number in range(1, 11):
            if split != "stylised":
                yield shape, f"{shape}{number}.png"
                continue
            for k in range(3 + (label + number) % 2):
                yield shape, f"{shape}{number}-{CLASSES[(label + k * number) % len(CLASSES)]}{k + 1}.png"


def write(folder, monkeypatch, packed=True, side=8):
    """Pictures that show their class by their brightness, and their number by their colour; the folder."""
    rng, kinds = np.random.default_rng(0), list(KINDS)
    rows = [(kind, shape, name) for kind in kinds for shape, name in names(kind)]
    x = rng.integers(0, 60, (len(rows), side, side, 3), dtype=np.uint8)
    x[:, : side // 2] += np.array([10 * CLASSES.index(shape) for _, shape, _ in rows], np.uint8)[:, None, None, None]
    counts = {kind: sum(row[0] == kind for row in rows) for kind in kinds}
    monkeypatch.setattr(texture_shape, "TEXTURE_SHAPE", replace(texture_shape.TEXTURE_SHAPE, counts=counts))
    splitting.pictures.cache_clear()
    if packed:
        np.savez(
            folder / PACKED, x=x, kind=np.array([kinds.index(row[0]) for row in rows], np.uint8),
            kind_names=np.array(list(KINDS.values())), file_name=np.array([row[2] for row in rows]),
            shape_label=np.array([CLASSES.index(row[1]) for row in rows], np.int8), class_names=np.array(CLASSES),
        )  # fmt: skip
        return folder
    for (kind, shape, name), picture in zip(rows, x, strict=True):
        path = folder / "texture-vs-shape" / FOLDERS[kind][0] / shape / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(path)
    return folder
