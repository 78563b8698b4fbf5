"""Safe reading of the pickles in the python version of CIFAR: no code that a pickle names is run.

Such a file is a dict of lists, numbers, texts and one array of bytes. Only the names with which NumPy pickles an array
are permitted, and they are replaced by simple classes here, because NumPy's own trust their input.
"""

from __future__ import annotations

import io
import pickle
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from racecar_lab.datasets.base import DataError, words


class _Dtype:
    """The dtype in a pickle."""

    def __init__(self, code: Any, *_: Any) -> None:
        self.code = code.decode() if isinstance(code, bytes) else code

    def __setstate__(self, _: Any) -> None:
        """Ignores byte order and alignment, which bytes do not have."""


class _Array:
    """The array in a pickle; ``tensor`` is set when its content is read."""

    tensor: Tensor | None = None

    def __init__(self, *_: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, column_major, content = state
        if dtype.code not in ("u1", "|u1") or not isinstance(content, bytes) or len(content) != prod(shape):
            raise pickle.UnpicklingError(f"an array of {dtype.code} with shape {shape} and {len(content)} bytes")
        flat = torch.frombuffer(bytearray(content), dtype=torch.uint8)
        if column_major:
            self.tensor = flat.reshape(shape[::-1]).permute(*reversed(range(len(shape))))
        else:
            self.tensor = flat.reshape(shape)


ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): None,  # an argument of _reconstruct, not used
    ("numpy", "dtype"): _Dtype,
}


class _Unpickler(pickle.Unpickler):
    """Refuses all names that are not in ``ALLOWED``."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise DataError(f"it asks for {module}.{name}, which no such file needs: refused")
        return ALLOWED[module, name]


def read_pickle(path: Path) -> dict[bytes, Any]:
    """The dict in a pickle; arrays of bytes become uint8 tensors, and texts of Python 2 become bytes."""
    try:
        content = _Unpickler(io.BytesIO(path.read_bytes()), encoding="bytes").load()
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    except OSError:
        raise
    except Exception as error:  # a damaged pickle may raise anything
        raise DataError(f"{path} is damaged or truncated ({words(error)})") from error
    if not isinstance(content, dict):
        raise DataError(f"{path} holds no dict, but {type(content).__name__}")
    return {key: value.tensor if isinstance(value, _Array) else value for key, value in content.items()}
