"""Run a model while watching it: for real, or dry, to plan it without leaving a trace."""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree

from racecar.batch import batch_size
from racecar.capture import ModuleWatch, Watch, version
from racecar.errors import NoRuleWarning, Unsupported
from racecar.names import shown
from racecar.plan import Plan
from racecar.trace import Trace


def input_tensors(args: Any, kwargs: Any) -> list[Tensor]:
    """Every tensor among the model's arguments, however nested."""
    return [leaf for leaf in _pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]


def batch_tensors(args: Any, kwargs: Any) -> list[Tensor]:
    """The same; refuses a batch that holds no sample."""
    inputs = input_tensors(args, kwargs)
    if batch_size(inputs) == 0:
        raise ValueError("the inputs hold no samples: their batch is empty")
    return inputs


def watch_forward(
    model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], keep: frozenset[int] = frozenset()
) -> tuple[Any, Trace]:
    """Run the model and watch it. ``keep``: calls (or inputs, as −1 − i) whose tensor is needed as it was made."""
    inputs = batch_tensors(args, kwargs)
    kept_inputs = [x.clone() if -1 - i in keep else x for i, x in enumerate(inputs)]
    versions = [version(x) for x in inputs]
    watch = Watch(keep)
    with watch:
        output = model(*args, **kwargs)
    return output, Trace(watch.calls, inputs, watch.versions, versions, kept_inputs, keep)


class RandomState:
    """The random state of torch (on the CPU and the model's devices), Python and NumPy, to go back to."""

    def __init__(self, model: nn.Module) -> None:
        devices = {parameter.device for parameter in model.parameters() if parameter.device.type == "cuda"}
        self._torch = torch.get_rng_state()
        self._cuda = [(device, torch.cuda.get_rng_state(device)) for device in devices]
        self._python = random.getstate()
        numpy = sys.modules.get("numpy")
        self._numpy = None if numpy is None else numpy.random.get_state()

    def restore(self) -> None:
        torch.set_rng_state(self._torch)
        for device, state in self._cuda:
            torch.cuda.set_rng_state(state, device)
        random.setstate(self._python)
        if self._numpy is not None:
            sys.modules["numpy"].random.set_state(self._numpy)


@contextmanager
def untouched(model: nn.Module, start: RandomState | None = None) -> Iterator[None]:
    """Run the model on copies of its buffers, from random state ``start``; everything is put back afterwards."""
    now = RandomState(model)
    own = [(module, name, buffer) for module in model.modules() for name, buffer in module._buffers.items()]
    copies: dict[int, Tensor] = {}
    try:
        if start is not None:
            start.restore()
        for module, name, buffer in own:
            if buffer is not None:
                module._buffers[name] = copies.setdefault(id(buffer), buffer.clone())
        yield
    finally:
        for module, name, buffer in own:
            module._buffers[name] = buffer
        now.restore()


def uncompiled() -> AbstractContextManager[Any]:
    """Functions of a model that are compiled run as they were written: the compiler cannot trace what watches them."""
    if "torch._dynamo" not in sys.modules:  # nothing is compiled, and to import it takes seconds
        return nullcontext()
    return torch.compiler.set_stance("force_eager")


def dry_plan(
    model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], start: RandomState | None = None
) -> Plan:
    """Plan a model by one forward pass that leaves no trace: no gradient, no buffer, no random number."""
    watch = Watch()
    with torch.inference_mode(False), torch.no_grad(), untouched(model, start), uncompiled():
        args, kwargs = _pytree.tree_map_only(Tensor, torch.clone, (tuple(args), dict(kwargs)))
        inputs = batch_tensors(args, kwargs)
        versions = [version(x) for x in inputs]
        with warnings.catch_warnings():
            # Re-entrant checkpointing warns about the missing gradient before we can refuse it.
            warnings.filterwarnings("ignore", message="None of the inputs have requires_grad=True")
            try:
                with ModuleWatch(watch, model) as modules, watch:
                    model(*args, **kwargs)
            except Unsupported:
                raise
            except Exception as error:
                shapes = ", ".join(str(tuple(x.shape)) for x in inputs) or "no tensor"
                raise ValueError(
                    f"{type(model).__name__} does not accept example_inputs ({shapes}): {type(error).__name__}: {error}"
                ) from error
        return Plan(model, Trace(watch.calls, inputs, watch.versions, versions, inputs), modules)


def warn_about(plan: Plan) -> None:
    """Name what has no rule, and how to add one."""
    for layer in plan.layers:
        name = shown(layer.name)
        if layer.problem:
            message = f"layer {name!r} is skipped: {layer.problem}; add one with @racecar.rules.register(...)"
        elif layer.bottom is not None and layer.bottom.role == "unknown" and layer.bottom.rule is None:
            message = (
                f"no rule for {layer.bottom.kind!r}: the way back from layer {name!r} ends there; add one with "
                "@racecar.rules.register(..., role='shape') or role='activation'"
            )
        else:
            continue
        warnings.warn(message, NoRuleWarning, stacklevel=4)
