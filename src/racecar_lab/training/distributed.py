"""One training on several processes started by torchrun: they share each batch and average the gradients."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from racecar.support.processes import is_rank_zero


def launched() -> bool:
    """True if torchrun started this process as one of several."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def start(device: str) -> str:
    """Join the process group if torchrun started this process. Returns this process's device."""
    if not launched():
        return device
    if not distributed.is_initialized():
        distributed.init_process_group("nccl" if device.startswith("cuda") else "gloo")
        threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    if device.startswith("cuda"):
        device = f"cuda:{os.environ['LOCAL_RANK']}"
        torch.cuda.set_device(device)
    return device


def _end_with_parent(parent: int) -> None:
    """End this process when its parent is gone: processes would otherwise continue after torchrun was killed."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def world() -> int:
    """Number of processes that share a training; 1 without torchrun."""
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def wait() -> None:
    """Wait until every process of the training has called this function."""
    if world() > 1:
        distributed.barrier()


def mean(values: Tensor) -> Tensor:
    """The mean of a tensor over the processes, entry by entry."""
    if world() > 1:
        values = values.clone()
        distributed.all_reduce(values)
        values /= world()
    return values


def once(work: Callable[[], None], device: str) -> None:
    """Call ``work`` in the process of rank 0 while the others wait. If it raises, all processes raise."""
    wait()
    error: Exception | None = None
    if is_rank_zero():
        try:
            work()
        except Exception as raised:
            error = raised
    failed = mean(torch.tensor(float(error is not None), device=device))
    if error is not None:
        raise error
    if failed > 0:
        raise RuntimeError("the process that writes for all failed")


def wrap(module: nn.Module) -> nn.Module:
    """The module wrapped so that its gradients are averaged over the processes; the module itself if there is one
    process."""
    if world() == 1:
        return module
    device = next(module.parameters()).device
    return DistributedDataParallel(module, [device] if device.type == "cuda" else None)


def share(chosen: Tensor) -> Tensor:
    """This process's part of a tensor with one row for each sample of a batch."""
    if world() == 1:
        return chosen
    if len(chosen) % world():
        raise ValueError(f"a batch of {len(chosen)} cannot be shared by {world()} processes: choose a multiple of it")
    return chosen.chunk(world())[distributed.get_rank()]


def stop() -> None:
    """Leave the group of processes that share a training."""
    if world() > 1:
        distributed.destroy_process_group()
