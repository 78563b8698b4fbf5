"""Load weights from a file into a model; files with pickled code are refused."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from racecar.support.console import note
from racecar.support.extras import need
from racecar.support.torch_private import COMPILED_PREFIX

WRAPPINGS = ("state_dict", "model_state_dict", "model")
"""Keys under which a checkpoint may hold the state dict."""


def load_weights(model: nn.Module, file: Path) -> None:
    """Load all weights of a model from a file; if they do not fit, raise ValueError and change nothing."""
    state = model.state_dict()
    weights, prefix = _renamed(_state(_read(file), file), state)
    tied = {state[name].data_ptr() for name in weights if name in state}  # a file holds tied weights only once
    missing = [name for name, weight in state.items() if name not in weights and weight.data_ptr() not in tied]
    unexpected = [name for name in weights if name not in state]
    reshaped = [
        f"{name} is {_shape(weights[name])} there and {_shape(weight)} in the model"
        for name, weight in state.items()
        if name in weights and weights[name].shape != weight.shape
    ]
    missing = [name for name in missing if not name.endswith(".num_batches_tracked")]  # older files have none
    problems = [
        f"{len(names)} {problem}: {_first_three(names)}"
        for problem, names in (("missing", missing), ("unexpected", unexpected), ("of another shape", reshaped))
        if names
    ]
    if problems:
        raise ValueError(f"the weights of {file} do not fit {type(model).__name__}; " + "; ".join(problems))
    parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    for name, weight in weights.items():
        if problem := _unusable(weight, state[name].dtype, name in parameters):
            raise ValueError(f"{name} in {file} {problem}")
    model.load_state_dict(weights, strict=False)
    if prefix:
        note(f"names in {file} begin with {prefix!r}, which was left out")


def _read(file: Path) -> Any:
    """The content of a safetensors file or of a file by torch.save, tensors only."""
    if not file.is_file():
        raise ValueError(f"there is no weights file {file}")
    try:
        if file.suffix == ".safetensors":
            return need("safetensors.torch", "inspect").load_file(file)
        if zipfile.is_zipfile(file):
            _compare_checksums(file)
        return torch.load(file, map_location="cpu", weights_only=True)
    except ImportError:
        raise
    except Exception as error:  # of many kinds, and those of torch.load are pages long
        how = "safetensors" if file.suffix == ".safetensors" else "torch.load(weights_only=True)"
        raise ValueError(f"{file} cannot be read by {how}: it is damaged, or holds more than tensors") from error


def _compare_checksums(file: Path) -> None:
    """Raise if a file by torch.save does not match its checksums, which torch.load does not compare."""
    with zipfile.ZipFile(file) as archive:
        written = any(info.CRC for info in archive.infolist())  # not with torch.serialization.set_crc32_options(False)
        if written and (name := archive.testzip()):
            raise zipfile.BadZipFile(f"the checksum of {name} does not fit")


def _state(content: Any, file: Path) -> dict[str, Tensor]:
    """The state dict in a file's content, at the top or under one of ``WRAPPINGS``."""
    for key in WRAPPINGS:
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
            break
    if not isinstance(content, Mapping) or not content or not all(_is_weight(*item) for item in content.items()):
        raise ValueError(f"{file} holds no state dict (names and tensors), also not under {' or '.join(WRAPPINGS)}")
    for name, weight in content.items():
        if kind := _special(weight):
            raise ValueError(f"{name} in {file} is {kind}: save ordinary dense tensors")
    return dict(content)


def _is_weight(name: Any, weight: Any) -> bool:
    return isinstance(name, str) and isinstance(weight, Tensor)


def _special(weight: Tensor) -> str:
    """Why a tensor is not an ordinary dense one, as "sparse"; "" if it is."""
    if weight.is_nested:
        return "nested"
    if weight.is_meta:
        return "on the meta device, which holds no numbers"
    if weight.is_quantized:
        return "quantised"
    return "" if weight.layout == torch.strided else "sparse"


def _unusable(weight: Tensor, dtype: torch.dtype, parameter: bool) -> str:
    """The reason why a weight of the file cannot be loaded into a model whose weight has this dtype; "" if it can.

    NaN is refused everywhere, inf in parameters alone: buffers may hold it, as attention masks do.
    """
    if weight.is_complex() > dtype.is_complex or (dtype.is_floating_point and not weight.is_floating_point()):
        return f"holds {_dtype(weight.dtype)}, and the model has {_dtype(dtype)} there"
    numbers = weight.to(dtype)
    if numbers.isnan().any():
        return "holds NaN: that net died, or the file is damaged"
    if parameter and numbers.isinf().any():
        return f"holds what is infinite as {_dtype(dtype)}: that net diverged, or the file is damaged"
    return ""


def _dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _renamed(weights: dict[str, Tensor], state: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], str]:
    """Rename a file's weights to the names in a model's state dict.

    A prefix of all names is removed if more names fit without it: "module." of DataParallel, "model." of a Racecar or a
    LightningModule, …; that of torch.compile is removed anywhere.

    Returns:
        The renamed weights, and the prefix that was removed.
    """
    if not any(COMPILED_PREFIX in name for name in state):
        weights = {name.replace(COMPILED_PREFIX, ""): weight for name, weight in weights.items()}
    spellings = [weights]
    while len({name.partition(".")[0] for name in spellings[-1]}) == 1 and all("." in name for name in spellings[-1]):
        spellings.append({name.partition(".")[2]: weight for name, weight in spellings[-1].items()})
    best = max(spellings, key=lambda names: len(names.keys() & state.keys()))  # of equal ones the first, with all parts
    return best, next(iter(weights)).removesuffix(next(iter(best)))


def _shape(weight: Tensor) -> str:
    return "×".join(map(str, weight.shape)) or "a scalar"


def _first_three(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
