"""Refuse models and set-ups in which the reverse pass cannot work or would be silently wrong, with the remedy."""

from __future__ import annotations

import sys
from types import FrameType

import torch
from torch import nn
from torch.nn.parameter import UninitializedParameter
from torch.utils.checkpoint import CheckpointFunction

from racecar.errors import Unsupported
from racecar.support.torch_private import (
    fsdp_frees_weights,
    is_aten_operation,
    is_compiled,
    is_quantised,
    own_buffers,
    own_parameters,
)

_REENTRANT = (
    "re-entrant checkpointing runs the model without gradients and makes it anew in the backward pass, so the "
    "reverse loss would have silently wrong gradients; use torch.utils.checkpoint.checkpoint(…, use_reentrant=False)"
)


def check_model(model: nn.Module) -> None:
    """Refuse a model whose calls cannot be recorded, or whose weights the reverse pass cannot use."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, not {type(model).__name__}")
    for module in model.modules():
        problem = _problem(module)
        if problem:
            name = next(name for name, one in model.named_modules() if one is module)
            raise Unsupported(f"submodule {name!r} {problem}" if name else f"the model {problem}")
    check_sharding(model)


def _problem(module: nn.Module) -> str:
    """What is wrong with a module and what to do about it; empty for nearly all."""
    if isinstance(module, nn.DataParallel):
        return (
            "is an nn.DataParallel, which copies its layers in every call, so they cannot be followed; wrap the plain "
            "model in Racecar and that in DistributedDataParallel"
        )
    if isinstance(module, torch.jit.ScriptModule):
        return "is a TorchScript module, whose operations cannot be seen; pass the Python module"
    if is_compiled(module):
        return (
            "is compiled, which hides its operations; wrap the plain model and compile the Racecar: torch.compile(rr)"
        )
    if is_quantised(module):
        return "is quantised, and a quantised weight cannot be trained; pass the float model"
    parameters, buffers = own_parameters(module).values(), own_buffers(module).values()
    if any(isinstance(parameter, UninitializedParameter) for parameter in parameters):
        return "is lazy and has no weights yet; call the model once before you wrap it"
    if any(one is not None and one.is_meta for one in (*parameters, *buffers)):
        return (
            "has weights or buffers on the meta device, which holds no numbers; make real ones with "
            "model.to_empty(device=...) and load or initialise them"
        )
    if _is_exported(module):
        return "is what torch.export made, in ATen's operations, which have no rules; give the model before export"
    return ""


def _is_exported(module: nn.Module) -> bool:
    """Whether a module comes from torch.export, unflattened or not: it runs a graph of ATen operations."""
    graphs = [one for one in vars(module).values() if isinstance(one, torch.fx.Graph)]
    targets = [node.target for graph in graphs for node in graph.nodes]
    return any(is_aten_operation(target) for target in targets)


def check_sharding(model: nn.Module) -> None:
    """Refuse FSDP where it frees weights after their layer's forward pass: the reverse pass needs them again."""
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return
    from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel

    for name, module in model.named_modules():
        if isinstance(module, FullyShardedDataParallel):
            raise Unsupported(
                "FullyShardedDataParallel (FSDP1) hides the weights; use torch.distributed.fsdp.fully_shard"
            )
        if isinstance(module, FSDPModule) and fsdp_frees_weights(module, root=not name):
            where = f"submodule {name!r}" if name else "the model"
            raise Unsupported(
                f"{where} frees its sharded weights after its forward pass, but the reverse pass needs them again; "
                "call model.set_reshard_after_forward(False) before the first step"
            )


def reshard(model: nn.Module) -> None:
    """Free the gathered weights of sharded modules after a forward pass that no backward pass follows."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        from torch.distributed.fsdp import FSDPModule

        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()


def refuse_reentrant() -> None:
    """Raise if the current call is inside re-entrant checkpointing."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is CheckpointFunction.forward.__code__:
            raise Unsupported(_REENTRANT)
        frame = frame.f_back


def fusible(model: nn.Module) -> list[nn.Module]:
    """Modules that torch may run as one fused kernel, which it does not do while calls are recorded."""
    kinds = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerEncoder)
    return [module for module in model.modules() if isinstance(module, kinds)]


def takes_fused_path(modules: list[nn.Module]) -> bool:
    """Whether torch may run one of these modules as a fused kernel now: in evaluation, without gradient."""
    grad = torch.is_grad_enabled()
    return any(not m.training and not (grad and any(p.requires_grad for p in m.parameters())) for m in modules)
