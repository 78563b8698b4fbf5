"""The arrays of many runs in one file, arrays.safetensors: a tensor is named by its run and its own name, "id/name"."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from racecar.support.extras import need
from racecar.support.files import write_atomically

NAME = "arrays.safetensors"


def packed_arrays(folder: Path, id: str) -> dict[str, Tensor]:
    """What the file holds of one run; empty if there is nothing."""
    path = folder / NAME
    if not path.exists():
        return {}
    library = need("safetensors", "lab")
    try:
        with library.safe_open(path, "pt") as file:
            return {name.partition("/")[2]: file.get_tensor(name) for name in file.keys() if name.startswith(f"{id}/")}  # noqa: SIM118
    except library.SafetensorError as error:
        raise ValueError(f"{path} is damaged ({error}): delete it to make the page without its arrays") from None


def pack_arrays(folder: Path, kept: Mapping[str, Mapping[str, Tensor]]) -> int:
    """Write the file, and remove the arrays that have one for each run; returns how many tensors are kept.

    The file is in its place before the first of them goes; where a run has both, its own file is read.

    Args:
        kept: tensors by run and name; what is not among them is gone.
    """
    tensors = {f"{id}/{name}": tensor for id, some in kept.items() for name, tensor in some.items()}
    if tensors:
        with write_atomically(folder / NAME) as file:
            file.write(need("safetensors.torch", "lab").save(tensors))
    for path in (folder / "arrays").glob("*.safetensors"):
        path.unlink()
    return len(tensors)
