"""Padding masks among the arguments of a model's call, assigned to the inputs that they describe."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from racecar.reverse.health import can_read_values
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
"""Name of a mask argument of Hugging Face's and torch's transformers → (side, whether True marks data). The side is the
prefix in the names of the inputs that the mask describes; "": those with no such prefix."""
_SIDES = ("decoder_", "tgt", "memory")
_REMEDY = "give reverse_mask=, True for what is real"

NamedInputs = Sequence[tuple[str, Tensor]]
"""(name of the argument, tensor) for every tensor among the arguments of a call."""


class CallMask(NamedTuple):
    """The padding mask of one call, for each input of the model."""

    inputs: tuple[Tensor | None, ...]
    """For each tensor among the model's arguments a mask, True where a position is data and False where it is padding.
    It has the dimensions of the input, each of the same length or 1. None: all positions are data."""
    report: Callable[[str], None]
    """Called with the reason if the mask cannot be used: raises if the user gave the mask for the reverse loss, and
    warns if it was an argument of the model."""


class MaskArguments:
    """Finds the padding masks among the arguments of a model's calls.

    ``reverse_mask=`` is the mask of the reverse loss, and so is ``mask=`` if the model has no argument of that name. Of
    the model's own arguments, those of Hugging Face's and torch's transformers are understood.
    """

    def __init__(self, model: nn.Module) -> None:
        parameters = inspect.signature(model.forward).parameters
        kinds = {name: parameter.kind for name, parameter in parameters.items()}
        positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        self._model, self._names = type(model).__name__, [name for name, kind in kinds.items() if kind in positional]
        any_keyword = inspect.Parameter.VAR_KEYWORD in kinds.values()
        self._takes_mask, self._may_ignore_it = "mask" in kinds or any_keyword, "mask" not in kinds and any_keyword
        self._positional = any(name in _KNOWN for name in self._names)
        orders = {m.batch_first for m in model.modules() if isinstance(m, nn.MultiheadAttention)}
        self._tokens_first = isinstance(model, _TORCH) and False in orders
        """Whether the model reads (T, N, …) with a mask (N, T)."""
        self._maybe_tokens_first = not isinstance(model, _TORCH) and False in orders
        """Whether the model may do so: a module inside does."""
        self._warned = False

    def split_off(self, kwargs: dict[str, Any]) -> tuple[Tensor | None, dict[str, Any]]:
        """The mask of the reverse loss, if one is given, and the remaining keyword arguments, which are the model's."""
        if "reverse_mask" in kwargs:
            return kwargs["reverse_mask"], {name: arg for name, arg in kwargs.items() if name != "reverse_mask"}
        if "mask" not in kwargs or self._takes_mask:
            return None, kwargs
        return kwargs["mask"], {name: arg for name, arg in kwargs.items() if name != "mask"}

    def refuse_ignored(self, kwargs: Mapping[str, Any], trace: Trace) -> None:
        """Raise if ``mask=`` went to a model that takes any keyword argument and did not use this one."""
        mask = kwargs.get("mask") if self._may_ignore_it else None
        if isinstance(mask, Tensor):
            used = {value for uses in trace.links.values() for _, value in uses}
            if not any(x is mask and i in used for i, x in enumerate(trace.inputs)):
                raise TypeError(
                    f"{self._model}.forward takes any keyword, was given mask= and made no use of it: write "
                    "reverse_mask= for what the reverse loss leaves out"
                )

    def find(self, mask: Tensor | None, args: Sequence[Any], kwargs: Mapping[str, Any]) -> CallMask | None:
        """The padding mask of a call; None if the call has no padding.

        Args:
            mask: of the reverse loss, as the user gave it.
            args, kwargs: of the model.
        """
        of_model = {name: kwargs[name] for name in _KNOWN if name in kwargs}
        if self._positional and len(args) > 1:
            of_model |= {name: arg for name, arg in zip(self._names, args, strict=False) if name in _KNOWN}
        of_model = {name: arg for name, arg in of_model.items() if isinstance(arg, Tensor)}
        has_nested = nested.among(input_tensors(args, kwargs))
        if mask is None and not of_model and not has_nested:
            return None
        inputs = self._named_inputs(args, kwargs)
        masks = [nested.real(x) if x.is_nested else None for _, x in inputs]
        if mask is not None:
            if has_nested:
                raise TypeError("a nested tensor says by itself what is real: give no mask with it")
            side = _assign(mask, inputs, masks)
            of_model = {name: arg for name, arg in of_model.items() if _KNOWN[name][0] != side}
        for name, arg in of_model.items():
            self._assign_of_model(name, arg, inputs, masks)
        if all(mask is None for mask in masks):
            return None
        return CallMask(tuple(masks), _raise_nested if has_nested else self.warn if mask is None else _raise)

    def _named_inputs(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> NamedInputs:
        """Every tensor among the arguments, with the name of its argument."""
        named = [(self._names[i] if i < len(self._names) else "", arg) for i, arg in enumerate(args)]
        return [(name, x) for name, arg in (*named, *kwargs.items()) for x in input_tensors((arg,), {})]

    def _assign_of_model(self, name: str, mask: Tensor, inputs: NamedInputs, masks: list[Tensor | None]) -> None:
        """Set the masks of the inputs that a mask argument of the model describes."""
        side, true_is_real = _KNOWN[name]
        if mask.is_floating_point() or mask.dim() > 2:
            return self.warn(f"{name} {tuple(mask.shape)} of {mask.dtype} is no (N, T) of 0 and 1; {_REMEDY}")
        real = mask != 0 if true_is_real else mask == 0
        key = next((x for argument, x in inputs if argument == "key"), None)
        described = [i for i, (argument, x) in enumerate(inputs) if _side(argument) == side and not x.is_nested]
        for i in described:
            argument, x = inputs[i]
            if name == "key_padding_mask" and argument == "query" and x is not key:
                continue
            same, transposed = x.shape[: mask.dim()] == mask.shape, mask.dim() == 2 and x.shape[:2] == mask.shape[::-1]
            if same and transposed and self._maybe_tokens_first and argument not in _KNOWN:
                return self.warn(f"inputs {tuple(x.shape)} may be (N, T, …) or (T, N, …); {_REMEDY}")
            if transposed and (not same or (self._tokens_first and argument not in _KNOWN)):
                masks[i] = _with_dims_of(real.mT, x)
            elif same:
                masks[i] = _with_dims_of(real, x)
        data = [i for i in described if inputs[i][0] not in _KNOWN]
        if data and all(masks[i] is None for i in data):
            self.warn(f"no input begins with the shape {tuple(mask.shape)} of {name}; {_REMEDY}")

    def warn(self, reason: str) -> None:
        """Warn, once, that a mask is ignored."""
        if not compiling() and not self._warned:
            self._warned = True
            warnings.warn(f"padding counts in the reverse loss: {reason}", UserWarning, stacklevel=6)


def _assign(mask: Tensor, inputs: NamedInputs, masks: list[Tensor | None]) -> str:
    """Set the masks of the inputs that a mask of the reverse loss describes; returns their side, as in ``_KNOWN``."""
    if not isinstance(mask, Tensor):
        raise TypeError(f"mask must be a tensor, not {type(mask).__name__}")
    if mask.is_floating_point() or mask.is_complex():
        raise TypeError(f"mask must hold True or 1 for what is real, and be bool or whole numbers, not {mask.dtype}")
    if mask.layout is not torch.strided or mask.is_meta:
        raise TypeError(f"mask must be a dense tensor with values, not of layout {mask.layout} on {mask.device}")
    # Not on a GPU, where the check would wait for the device.
    checked = mask.dtype != torch.bool and mask.is_cpu and not compiling() and not in_transform(mask)
    if checked and can_read_values() and bool(((mask != 0) & (mask != 1)).any()):
        raise ValueError(
            "mask must hold True or 1 for what is real, and False or 0 for the rest; it holds other numbers"
        )
    sides = [_side(name) for name, _ in inputs]
    side, real = "" if "" in sides else sides[0], mask != 0
    for i, (_, x) in enumerate(inputs):
        fits = mask.dim() <= x.dim() and all(a in (1, b) for a, b in zip(mask.shape, x.shape, strict=False))
        if sides[i] == side and fits:
            masks[i] = _with_dims_of(real, x)
    if all(mask is None for mask in masks):
        shapes = ", ".join(str(tuple(x.shape)) for _, x in inputs)
        raise ValueError(
            f"no input begins with the shape {tuple(mask.shape)} of the mask ({shapes}): it is (N, T) for inputs "
            "(N, T, …), and (N, 1, T) for (N, C, T)"
        )
    return side


def _with_dims_of(mask: Tensor, x: Tensor) -> Tensor:
    """A mask of the first dimensions of x, with further dimensions of size 1 until it has as many as x."""
    return mask.reshape(*mask.shape, *(1,) * (x.dim() - mask.dim()))


def _raise(reason: str) -> None:
    raise ValueError(f"the mask cannot be used: {reason}; give that layer weight 0, or give no mask")


def _raise_nested(reason: str) -> None:
    raise ValueError(f"the nested tensor cannot be followed: {reason}; give that layer weight 0, or a padded tensor")


def _side(name: str) -> str:
    """The side of an input, as in ``_KNOWN``, from the name of its argument."""
    return next((side for side in _SIDES if name.startswith(side)), "")
