"""Which arguments of a call say what is padding, and which of its inputs they speak of."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from racecar.reverse.health import can_look
from racecar.support.compiling import compiling
from racecar.support.torch_private import in_transform
from racecar.watch import nested
from racecar.watch.inputs import input_tensors
from racecar.watch.trace import Trace

_TORCH = (
    nn.Transformer, nn.TransformerEncoder, nn.TransformerDecoder, nn.TransformerEncoderLayer,
    nn.TransformerDecoderLayer, nn.MultiheadAttention,
)  # fmt: skip

_KNOWN = {
    "attention_mask": ("", True),
    "src_key_padding_mask": ("", False),
    "key_padding_mask": ("", False),
    "decoder_attention_mask": ("decoder_", True),
    "tgt_key_padding_mask": ("tgt", False),
    "memory_key_padding_mask": ("memory", False),
}
"""Arguments of Hugging Face's and of torch's transformers → how the names of the inputs begin that they speak of
("": all others), and whether True says that a position is real."""
_SIDES = ("decoder_", "tgt", "memory")
_INSTEAD = "give reverse_mask=, True for what is real"

Inputs = Sequence[tuple[str, Tensor]]
"""The tensors among the arguments of a call, with the names of the arguments."""


class GivenMask(NamedTuple):
    """What a call says of padding."""

    inputs: tuple[Tensor | None, ...]
    """For each tensor among the model's arguments, True where a position is real and False where it is padding, with
    the input's number of dimensions, each as long or 1; None: all of it is real."""
    refuse: Callable[[str], None]
    """Say why it cannot be used: an error if the user gave it for us, else a warning."""


class MaskArguments:
    """Finds the masks among the arguments of a model's calls.

    ``reverse_mask=`` is ours, and so is ``mask=`` where the model cannot take an argument of that name.
    """

    def __init__(self, model: nn.Module) -> None:
        kinds = {name: one.kind for name, one in inspect.signature(model.forward).parameters.items()}
        positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        self._model, self._names = type(model).__name__, [name for name, kind in kinds.items() if kind in positional]
        any_keyword = inspect.Parameter.VAR_KEYWORD in kinds.values()
        self._takes_mask, self._may_ignore_it = "mask" in kinds or any_keyword, "mask" not in kinds and any_keyword
        self._positional = any(name in _KNOWN for name in self._names)
        orders = {m.batch_first for m in model.modules() if isinstance(m, nn.MultiheadAttention)}
        self._tokens_first = isinstance(model, _TORCH) and False in orders
        """Whether the model's input is (T, N, …) for a mask (N, T)."""
        self._unclear = not isinstance(model, _TORCH) and False in orders
        """Whether its input may be so."""
        self._told = False

    def take(self, kwargs: dict[str, Any]) -> tuple[Tensor | None, dict[str, Any]]:
        """The mask that is ours, and the model's own keyword arguments."""
        if "reverse_mask" in kwargs:
            return kwargs["reverse_mask"], {name: one for name, one in kwargs.items() if name != "reverse_mask"}
        if "mask" not in kwargs or self._takes_mask:
            return None, kwargs
        return kwargs["mask"], {name: one for name, one in kwargs.items() if name != "mask"}

    def check_use(self, kwargs: Mapping[str, Any], trace: Trace) -> None:
        """Refuse a ``mask=`` that went to a model which takes any keyword, and did nothing with it."""
        mask = kwargs.get("mask") if self._may_ignore_it else None
        if isinstance(mask, Tensor):
            used = {value for found in trace.links.values() for _, value in found}
            if not any(x is mask and i in used for i, x in enumerate(trace.inputs)):
                raise TypeError(
                    f"{self._model}.forward takes any keyword, was given mask= and made no use of it: write "
                    "reverse_mask= for what the reverse loss leaves out"
                )

    def find(self, mask: Tensor | None, args: Sequence[Any], kwargs: Mapping[str, Any]) -> GivenMask | None:
        """What a call with ``mask`` of ours says of padding; None: nothing."""
        own = {name: kwargs[name] for name in _KNOWN if name in kwargs}
        if self._positional and len(args) > 1:
            own |= {name: one for name, one in zip(self._names, args, strict=False) if name in _KNOWN}
        own = {name: one for name, one in own.items() if isinstance(one, Tensor)}
        lengths = nested.among(input_tensors(args, kwargs))
        if mask is None and not own and not lengths:
            return None
        inputs = self._inputs(args, kwargs)
        marks = [nested.real(x) if x.is_nested else None for _, x in inputs]
        if mask is not None:
            if lengths:
                raise TypeError("a nested tensor says by itself what is real: give no mask with it")
            side = _ours(mask, inputs, marks)
            own = {name: one for name, one in own.items() if _KNOWN[name][0] != side}
        for name, one in own.items():
            self._understand(name, one, inputs, marks)
        if all(one is None for one in marks):
            return None
        return GivenMask(tuple(marks), _refuse_nested if lengths else self.tell if mask is None else _refuse)

    def _inputs(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Inputs:
        """Every tensor among the arguments, with the name of its argument."""
        named = [(self._names[i] if i < len(self._names) else "", one) for i, one in enumerate(args)]
        return [(name, x) for name, one in (*named, *kwargs.items()) for x in input_tensors((one,), {})]

    def _understand(self, name: str, mask: Tensor, inputs: Inputs, marks: list[Tensor | None]) -> None:
        """What an argument of the model itself says."""
        side, true_is_real = _KNOWN[name]
        if mask.is_floating_point() or mask.dim() > 2:
            return self.tell(f"{name} {tuple(mask.shape)} of {mask.dtype} is no (N, T) of 0 and 1; {_INSTEAD}")
        real = mask != 0 if true_is_real else mask == 0
        key = next((x for one, x in inputs if one == "key"), None)
        spoken_of = [i for i, (one, x) in enumerate(inputs) if _side(one) == side and not x.is_nested]
        for i in spoken_of:
            one, x = inputs[i]
            if name == "key_padding_mask" and one == "query" and x is not key:
                continue
            same, turned = x.shape[: mask.dim()] == mask.shape, mask.dim() == 2 and x.shape[:2] == mask.shape[::-1]
            if same and turned and self._unclear and one not in _KNOWN:
                return self.tell(f"inputs {tuple(x.shape)} may be (N, T, …) or (T, N, …); {_INSTEAD}")
            if turned and (not same or (self._tokens_first and one not in _KNOWN)):
                marks[i] = _as_of(real.mT, x)
            elif same:
                marks[i] = _as_of(real, x)
        data = [i for i in spoken_of if inputs[i][0] not in _KNOWN]
        if data and all(marks[i] is None for i in data):
            self.tell(f"no input begins with the shape {tuple(mask.shape)} of {name}; {_INSTEAD}")

    def tell(self, why: str) -> None:
        """That padding counts after all, once."""
        if not compiling() and not self._told:
            self._told = True
            warnings.warn(f"padding counts in the reverse loss: {why}", UserWarning, stacklevel=6)


def _ours(mask: Tensor, inputs: Inputs, marks: list[Tensor | None]) -> str:
    """Lay a mask of ours over the inputs that it fits; how the names of those begin that it speaks of."""
    if not isinstance(mask, Tensor):
        raise TypeError(f"mask must be a tensor, not {type(mask).__name__}")
    if mask.is_floating_point() or mask.is_complex():
        raise TypeError(f"mask must hold True or 1 for what is real, and be bool or whole numbers, not {mask.dtype}")
    if mask.layout is not torch.strided or mask.is_meta:
        raise TypeError(f"mask must be a dense tensor with values, not of layout {mask.layout} on {mask.device}")
    # On a GPU this would wait for the device.
    look = mask.dtype != torch.bool and mask.is_cpu and not compiling() and not in_transform(mask) and can_look()
    if look and bool(((mask != 0) & (mask != 1)).any()):
        raise ValueError(
            "mask must hold True or 1 for what is real, and False or 0 for the rest; it holds other numbers"
        )
    sides = [_side(name) for name, _ in inputs]
    side, real = "" if "" in sides else sides[0], mask != 0
    for i, (_, x) in enumerate(inputs):
        fits = mask.dim() <= x.dim() and all(a in (1, b) for a, b in zip(mask.shape, x.shape, strict=False))
        if sides[i] == side and fits:
            marks[i] = _as_of(real, x)
    if all(one is None for one in marks):
        shapes = ", ".join(str(tuple(x.shape)) for _, x in inputs)
        raise ValueError(
            f"no input begins with the shape {tuple(mask.shape)} of the mask ({shapes}): it is (N, T) for inputs "
            "(N, T, …), and (N, 1, T) for (N, C, T)"
        )
    return side


def _as_of(mask: Tensor, x: Tensor) -> Tensor:
    """A mask of the first dimensions of x, with as many as x."""
    return mask.reshape(*mask.shape, *(1,) * (x.dim() - mask.dim()))


def _refuse(why: str) -> None:
    raise ValueError(f"the mask cannot be used: {why}; give that layer weight 0, or give no mask")


def _refuse_nested(why: str) -> None:
    raise ValueError(f"the nested tensor cannot be followed: {why}; give that layer weight 0, or a padded tensor")


def _side(name: str) -> str:
    return next((side for side in _SIDES if name.startswith(side)), "")
