"""The arrays of many runs in one file, arrays.safetensors: a tensor is named by its run and its own name, "id/name".

The file's metadata has a checksum for each tensor: safetensors has none of its own. Older files have no metadata.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from racecar.support.extras import need
from racecar.support.files import write_atomically

NAME = "arrays.safetensors"
CHECKSUMS = "checksums"
"""In the metadata: what every tensor must be, as JSON."""


def packed_arrays(folder: Path, id: str) -> dict[str, Tensor]:
    """What the file holds of one run; empty if there is nothing."""
    path = folder / NAME
    if not path.exists():
        return {}
    library = need("safetensors", "lab")
    try:
        with library.safe_open(path, "pt") as file:
            names = list(file.keys())
            found = {name: file.get_tensor(name) for name in names if name.startswith(f"{id}/")}
            if (metadata := file.metadata()) is not None:
                sums = json.loads(metadata[CHECKSUMS])
                if sums.keys() != set(names) or any(sums[name] != _checksum(found[name]) for name in found):
                    raise ValueError("its checksums do not fit")
    except (library.SafetensorError, LookupError, ValueError) as error:
        raise ValueError(f"{path} is damaged ({error}): delete it to make the page without its arrays") from None
    return {name.partition("/")[2]: tensor for name, tensor in found.items()}


def pack_arrays(folder: Path, kept: Mapping[str, Mapping[str, Tensor]]) -> int:
    """Write the file, and remove the arrays that have one for each run; returns how many tensors are kept.

    The file is in its place before the first of them goes; where a run has both, its own file is read.

    Args:
        kept: tensors by run and name; what is not among them is gone.
    """
    tensors = {f"{id}/{name}": tensor for id, some in kept.items() for name, tensor in some.items()}
    if tensors:
        with write_atomically(folder / NAME) as file:
            sums = {name: _checksum(tensor) for name, tensor in sorted(tensors.items())}
            file.write(need("safetensors.torch", "lab").save(tensors, {CHECKSUMS: json.dumps(sums)}))
    for path in (folder / "arrays").glob("*.safetensors"):
        path.unlink()
    return len(tensors)


def _checksum(tensor: Tensor) -> str:
    """Of what a tensor is and holds: the beginning of its SHA-256."""
    content = tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes()
    return hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)} ".encode() + content).hexdigest()[:16]
