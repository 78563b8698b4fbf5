"""Load the samples of ``racecar inspect --data``: pictures in a folder, or arrays in a file."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from racecar.cli.target.inputs import Input
from racecar.support.extras import need

PICTURES = {".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".pgm", ".tif", ".tiff", ".webp"}
ARRAYS = {".npy", ".npz", ".safetensors"}
INPUT_NAMES = ("x", "images", "inputs")
LABEL_NAMES = ("y", "labels")


@dataclass(frozen=True)
class Samples:
    """Samples to run a model on, with labels if known."""

    inputs: Tensor
    """(n, …), in the shape of the model's input."""
    labels: Tensor | None
    """Class numbers, (n,); None if unknown."""
    source: str
    """Origin of the samples, as a phrase for the report."""
    picture: tuple[int, int, int] | None = None
    """(channels, height, width) if the samples are pictures, flattened or not; else None."""


def load_samples(path: Path, wanted: Input, limit: int, dtype: torch.dtype = torch.float32) -> Samples:
    """Load at most ``limit`` samples, in the shape of a model's input.

    Args:
        path: a folder of pictures, with one subfolder per class or without, or a file .npy, .npz or .safetensors.
        wanted: the model's input.
        limit: most samples to load.
        dtype: dtype of the samples, unless the model takes integers.
    """
    if path.is_dir():
        return _folder(path, wanted, limit, dtype)
    if not path.is_file():
        raise ValueError(f"there is no folder or file {path}")
    if path.suffix not in ARRAYS:
        raise ValueError(f"{path} is not a folder of pictures, nor a file {', '.join(sorted(ARRAYS))}")
    return _arrays(path, wanted, limit, dtype)


def picture_shape(shape: tuple[int, ...]) -> tuple[int, int, int] | None:
    """(channels, height, width) of the pictures that an input of shape (n, …) holds; None if they are no pictures.

    A row of s² or 3s² numbers is taken for a flattened square picture.
    """
    if len(shape) == 4:
        return (shape[1], shape[2], shape[3]) if shape[1] in (1, 3) else None
    if len(shape) == 2:
        for channels in (1, 3):
            side = math.isqrt(shape[1] // channels)
            if side > 1 and channels * side * side == shape[1]:
                return channels, side, side
    return None


def _folder(path: Path, wanted: Input, limit: int, dtype: torch.dtype) -> Samples:
    size = None if wanted.below else picture_shape(wanted.shape)
    if size is None:
        raise ValueError(f"--data {path} holds pictures, but the input {wanted} takes none of 1 or 3 channels")
    files: list[tuple[Path, int]] = [(file, -1) for file in _pictures(path)]
    subfolders = [] if files else [_pictures(folder) for folder in sorted(path.iterdir()) if folder.is_dir()]
    classes = [pictures for pictures in subfolders if pictures]
    if classes:
        # One of each class in turn, so that a limit leaves all classes in.
        turns = zip_longest(*([(file, label) for file in pictures] for label, pictures in enumerate(classes)))
        files = [labelled for labelled in chain.from_iterable(turns) if labelled is not None]
    if not files:
        raise ValueError(f"there are no pictures in {path}, nor in folders in it")
    files = files[:limit]
    inputs = _fitted(torch.stack([_picture(file, size) for file, _ in files]), wanted, path).to(dtype)
    labels = torch.tensor([label for _, label in files]) if classes else None
    source = f"{len(files)} pictures{f' of {len(classes)} classes' if classes else ''} from {path}"
    return Samples(inputs, labels, source, size)


def _pictures(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.suffix.lower() in PICTURES)


def _picture(file: Path, size: tuple[int, int, int]) -> Tensor:
    """One picture, cropped in the middle and resized, (channels, height, width) in [0, 1]."""
    image, ops, numpy = need("PIL.Image", "inspect"), need("PIL.ImageOps", "inspect"), need("numpy", "inspect")
    channels, height, width = size
    try:
        with image.open(file) as opened:
            deep = opened.mode[0] in "IF"
            picture = ops.exif_transpose(opened).convert("L" if channels == 1 else "RGB")
    except (OSError, SyntaxError, ValueError, image.DecompressionBombError) as error:
        raise ValueError(f"{file} cannot be read as a picture") from error
    if deep:
        raise ValueError(f"{file} has more than 8 bits per channel: save such data as an array (.npy)")
    picture = ops.fit(picture, (width, height), image.Resampling.BICUBIC)
    array = numpy.array(picture, dtype=numpy.float32) / 255
    return torch.from_numpy(array).reshape(height, width, channels).permute(2, 0, 1)


def _arrays(path: Path, wanted: Input, limit: int, dtype: torch.dtype) -> Samples:
    arrays = _read(path)
    name = next((name for name in INPUT_NAMES if name in arrays), "")
    if not name and len(arrays) != 1:
        raise ValueError(f"{path} has no array named {' or '.join(INPUT_NAMES)}, but {', '.join(arrays) or 'none'}")
    inputs = _tensor(arrays[name or next(iter(arrays))], path)
    labels = next((_tensor(arrays[name], path) for name in LABEL_NAMES if name in arrays), None)
    if inputs.dim() == 0 or not len(inputs):
        raise ValueError(f"{path} holds no samples")
    if labels is not None and (labels.dim() != 1 or len(labels) != len(inputs) or labels.is_floating_point()):
        raise ValueError(f"the labels in {path} must be one integer per sample, not {_words(labels)}")
    inputs, labels = inputs[:limit], None if labels is None else labels[:limit].long()
    if inputs.dtype == torch.uint8 and not wanted.below:
        inputs = inputs / 255
    picture = _picture_of(inputs)
    inputs = _typed(_fitted(inputs, wanted, path), wanted, dtype, path)
    return Samples(inputs, labels, f"{len(inputs)} samples from {path}", picture)


def _read(path: Path) -> dict[str, Any]:
    """Name → array (NumPy's, or tensors) of a file."""
    try:
        if path.suffix == ".safetensors":
            return dict(need("safetensors.torch", "inspect").load_file(path))
        content: Any = need("numpy", "inspect").load(path, allow_pickle=False)
        return {"x": content} if path.suffix == ".npy" else dict(content)
    except ImportError:
        raise
    except Exception as error:  # zip, header, pickled objects: each has its own
        raise ValueError(f"{path} cannot be read: it is damaged, or holds more than arrays of numbers") from error


def _tensor(array: Any, path: Path) -> Tensor:
    if isinstance(array, Tensor):
        return array
    kind, width = array.dtype.kind, array.dtype.itemsize
    if kind not in "biuf":
        raise ValueError(f"{path} holds {array.dtype} where numbers are needed")
    # torch does little with wide unsigned integers, and nothing with another order of bytes.
    dtype = "int64" if kind == "u" and width > 1 else array.dtype.newbyteorder("=")
    return torch.from_numpy(array.astype(dtype, order="C"))


def _fitted(x: Tensor, wanted: Input, path: Path) -> Tensor:
    """Samples (n, …) brought to the shape of the model's input; raises if they do not fit."""
    sample = wanted.shape[1:]
    if len(sample) == 3 and x.dim() == 3:
        x = x.unsqueeze(1)  # grayscale without a channel dimension
    if len(sample) == 3 and x.dim() == 4 and tuple(x.shape[1:]) != sample and x.shape[3] == sample[0]:
        x = x.permute(0, 3, 1, 2)  # channels last
    if len(sample) == 1 and x.dim() > 2:
        x = x.flatten(1)
    if tuple(x.shape[1:]) != sample:
        raise ValueError(f"the samples in {path} are {_words(x)}, which does not fit the input {wanted}")
    return x.contiguous()


def _picture_of(x: Tensor) -> tuple[int, int, int] | None:
    """(channels, height, width) of pictures (n, …) with channels first or none; else None, because flattened pictures
    with channels last could not be shown."""
    if x.dim() == 3:
        return (1, x.shape[1], x.shape[2])
    return (x.shape[1], x.shape[2], x.shape[3]) if x.dim() == 4 and x.shape[1] in (1, 3) else None


def _typed(x: Tensor, wanted: Input, dtype: torch.dtype, path: Path) -> Tensor:
    if not wanted.below:
        return x.to(dtype)
    if x.is_floating_point() or int(x.min()) < 0 or int(x.max()) >= wanted.below:
        raise ValueError(f"the samples in {path} must be integers from 0 to {wanted.below - 1} for the input {wanted}")
    return x.long()


def _words(x: Tensor) -> str:
    return f"{'×'.join(map(str, x.shape))} {str(x.dtype).removeprefix('torch.')}"
