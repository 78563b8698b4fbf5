"""One training on several processes, as torchrun starts them: the batch is shared out, gradients are averaged."""

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
    """Whether torchrun started this process as one of several."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def start(device: str) -> str:
    """Join the processes that torchrun started, if it did; the device of this one."""
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
    """Processes that torchrun started go on when it is killed; nobody waits for their work."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def world() -> int:
    """How many processes share a training."""
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def wait() -> None:
    """Until every process is here."""
    if world() > 1:
        distributed.barrier()


def mean(values: Tensor) -> Tensor:
    """Of the values that the processes have."""
    if world() > 1:
        values = values.clone()
        distributed.all_reduce(values)
        values /= world()
    return values


def once(work: Callable[[], None], device: str) -> None:
    """Rank 0 works for all processes. They start and go on together; where it fails, all of them do."""
    wait()
    error: Exception | None = None
    if is_rank_zero():
        try:
            work()
        except Exception as caught:
            error = caught
    failed = mean(torch.tensor(float(error is not None), device=device))
    if error is not None:
        raise error
    if failed > 0:
        raise RuntimeError("the process that writes for all failed")


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
