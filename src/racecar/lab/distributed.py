"""One training on several processes, as torchrun starts them: the batch is shared out, gradients are averaged."""

from __future__ import annotations

import os

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel


def start(device: str) -> str:
    """Join the processes that torchrun started, if it did; the device of this one."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return device
    if not distributed.is_initialized():
        distributed.init_process_group("nccl" if device.startswith("cuda") else "gloo")
    if device.startswith("cuda"):
        device = f"cuda:{os.environ['LOCAL_RANK']}"
        torch.cuda.set_device(device)
    return device


def world() -> int:
    """How many processes share a training."""
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def first() -> bool:
    """Whether this process writes for all."""
    return world() == 1 or distributed.get_rank() == 0


def wait() -> None:
    """Until every process is here."""
    if world() > 1:
        distributed.barrier()


def wrap(module: nn.Module) -> nn.Module:
    """Average the gradients over the processes."""
    if world() == 1:
        return module
    device = next(module.parameters()).device
    return DistributedDataParallel(module, [device] if device.type == "cuda" else None)


def share(chosen: Tensor) -> Tensor:
    """This process's part of a batch's indices."""
    if world() == 1:
        return chosen
    if len(chosen) % world():
        raise ValueError(f"a batch of {len(chosen)} cannot be shared by {world()} processes: choose a multiple of it")
    return chosen.chunk(world())[distributed.get_rank()]


def stop() -> None:
    if world() > 1:
        distributed.destroy_process_group()
