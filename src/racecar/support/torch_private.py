"""Everything of torch that the library uses and torch does not document: a new torch may move it, and then only this
file changes. Nothing here knows of racecar.

All of it was tried on torch 2.11 and 2.13. Each docstring says what the name is for and what happens in a torch without
it; where nothing is said, the call (or, of a class or constant, ``import racecar``) raises an AttributeError or
ImportError that names it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.autograd import Variable
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.nn.parallel import DistributedDataParallel
from torch.utils import _pytree

F = TypeVar("F", bound=Callable[..., Any])

# Tensors


def view_base(tensor: Tensor) -> Tensor | None:
    """The tensor that this one is a view of; None if it has memory of its own."""
    return tensor._base


GET_VIEW_BASE = Tensor._base.__get__  # type: ignore[union-attr]
"""What a function mode is shown when a model, or a wrapper such as FSDP, reads ``view_base`` of a tensor."""


def version(tensor: Tensor) -> int:
    """How often a tensor has been changed in place; 0 for one of inference mode, which does not count."""
    return 0 if tensor.is_inference() else tensor._version


def tensors_in(tree: Any) -> list[Tensor]:
    """Every tensor in nested tuples, lists, dicts and registered classes, in their order."""
    return [leaf for leaf in _pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]


def map_tensors(function: Callable[[Tensor], Tensor], tree: Any) -> Any:
    """A copy of such a nesting in which ``function`` was applied to every tensor."""
    return _pytree.tree_map_only(Tensor, function, tree)


# Modules

AnyBatchNorm = _BatchNorm
"""The base class of all batch norms, SyncBatchNorm and lazy ones among them."""
AnyRunningNorm = _NormBase
"""The base class of batch norms and instance norms: what can have running statistics."""
AnyConv = _ConvNd
"""The base class of all convolutions."""
AnyConvTranspose = _ConvTransposeNd
"""The base class of transposed convolutions."""

HOOK_TABLES = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
"""The attributes in which a module keeps the hooks that run around its forward. If torch renames one, those hooks run
twice in a network with an attached racecar loss."""

COMPILED_PREFIX = "_orig_mod."
"""What torch.compile puts before the names in a state dict. Without it files of compiled models must be loaded into
compiled models."""


def own_parameters(module: nn.Module) -> dict[str, nn.Parameter | None]:
    """The parameters that a module itself holds, by name; also what stands in for them in ``functional_call``."""
    return module._parameters


def own_buffers(module: nn.Module) -> dict[str, Tensor | None]:
    """The buffers that a module itself holds, by name, to read and to replace."""
    return module._buffers


def recurrent_parameter_names(module: nn.RNNBase) -> list[str]:
    """The names of an RNN's weights and biases, also where they are parametrised."""
    return module._flat_weights_names


def is_compiled(module: nn.Module) -> bool:
    """Whether a module was compiled, by ``torch.compile(m)`` or ``m.compile()``. The first is not noticed without
    ``_orig_mod``; then such a model is refused later, as one in which no operation is seen."""
    return hasattr(module, "_orig_mod") or module._compiled_call_impl is not None


def before_compile(module: nn.Module) -> nn.Module:
    """The module that ``torch.compile`` was given, or the module itself if it is none of its results. Without
    ``_orig_mod`` it is always the module itself."""
    return cast(nn.Module, getattr(module, "_orig_mod", module))


def is_quantised(module: nn.Module) -> bool:
    """Whether a module holds quantised weights. Without ``_packed_params`` only torch's own classes are noticed."""
    return ".quantized" in type(module).__module__ or hasattr(module, "_packed_params")


# Operations

NN_FUNCTIONS = torch._C._nn
"""The namespace of functions that torch.nn.functional takes from C++, which torch.compile may show in their place."""


def is_aten_operation(function: Any) -> bool:
    """Whether a function is an operation of ATen, as in what torch.export makes."""
    return isinstance(function, torch._ops.OpOverload) and function.namespace == "aten"


def batch_norm_with_statistics(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """``torch.batch_norm`` in training, bit for bit, with what it throws away: the mean (C,) and 1/σ (C,) of x, which
    take as long to find again as the norm itself."""
    output, mean, inverse, *_ = torch._batch_norm_impl_index(
        x, weight, bias, running_mean, running_var, True, momentum, eps, torch.backends.cudnn.enabled
    )
    return output, mean, inverse


def variances(inverse: list[Tensor], eps: list[float], factors: list[Any]) -> list[Tensor]:
    """(1/inverse² − eps) · factor, at least 0, for each of many tensors, in four kernels for all of them together."""
    variance = torch._foreach_pow(inverse, -2)
    torch._foreach_sub_(variance, eps)
    torch._foreach_clamp_min_(variance, 0)
    torch._foreach_mul_(variance, factors)
    return list(variance)


# Autograd


def run_in_turn_of(node: Any, other: Any) -> None:
    """Let the backward pass run ``node`` as if it had been made together with the node ``other``: it takes those that
    were made last first."""
    node._set_sequence_nr(other._sequence_nr())


def after_backward(function: Callable[[], None]) -> None:
    """Call a function at the end of the backward pass that runs now."""
    Variable._execution_engine.queue_callback(function)


# Ways of running torch

in_transform = is_functorch_wrapped_tensor
"""Whether a tensor is a wrapper of torch.func (vmap, grad …), which dies with the transform. Torch's function itself:
the compiler knows it, and needs no guard for it."""


def in_function_mode() -> bool:
    """Whether a ``TorchFunctionMode`` around this code sees the functions of torch that it calls."""
    return torch._C._len_torch_function_stack() > 0


def in_dispatch_mode() -> bool:
    """Whether a ``TorchDispatchMode`` around this code sees the operations that it runs."""
    return torch._C._len_torch_dispatch_stack() > 0


def compiler_is_loaded() -> bool:
    """Whether torch.compile was used so far: to import its module takes seconds. If torch renames that module, compiled
    functions inside a model are not switched off while it is watched, and their operations are not seen."""
    return "torch._dynamo" in sys.modules


def at_trace_time(function: F) -> F:
    """A function that torch.compile calls while it traces, and whose result it takes for a constant.

    As ``torch.compiler.assume_constant_result``, which also loads the compiler. In a torch that does not look at the
    mark, the compiler traces into the function, and breaks the graph or fails there.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


CHECKPOINT_LOG = "torch._higher_order_ops.wrap"
"""The logger by which torch.compile comments on selective checkpoints. If torch renames it, that comment is shown."""


# DistributedDataParallel (DDP) and FSDP


def in_ddp_forward() -> bool:
    """Whether this code runs inside the forward of a DDP wrapper."""
    return DistributedDataParallel._get_active_ddp_module() is not None


def ddp_parameters(ddp: DistributedDataParallel) -> list[nn.Parameter]:
    """The parameters whose gradients a wrapper averages."""
    return cast(list[nn.Parameter], ddp._module_parameters)


def ddp_needs_forward(ddp: DistributedDataParallel) -> bool:
    """Whether a wrapper averages gradients only after a forward of its own: not while it is being made, and not where
    hooks of the parameters average them. Without ``reducer`` no wrapper does, and nothing is refused."""
    return "reducer" in vars(ddp) and not ddp._use_python_reducer


def ddp_averagings(ddp: DistributedDataParallel) -> Any:
    """Something that differs before and after every backward pass whose gradients a wrapper averages: when each was
    ready, or the first flag of a static graph. Without that flag, the first pass of a static graph is refused."""
    return ddp.reducer.get_backward_stats(), getattr(ddp, "_static_graph_delay_allreduce_enqueued", False)


def fsdp_frees_weights(module: Any, root: bool) -> bool:
    """Whether an ``FSDPModule`` frees its weights after its forward. The ``root`` keeps them by default, which it finds
    out in its first forward; without ``_auto_reshard_after_forward`` it is taken for one that was told to free them."""
    state = module._get_fsdp_state()
    group = state._fsdp_param_group
    keeps_by_default = root and bool(getattr(state, "_auto_reshard_after_forward", False))
    return group is not None and bool(group._reshard_after_forward) and not keeps_by_default
