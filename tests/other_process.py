"""Another process for a test."""

import warnings
from collections.abc import Callable
from multiprocessing.process import BaseProcess

import torch


def started(work: Callable[..., object], *args: object) -> BaseProcess:
    """A process that runs ``work``: forked, so that it has imported all; not with a CUDA device, whose threads of
    autograd cannot be forked."""
    context = torch.multiprocessing.get_context("spawn" if torch.cuda.is_available() else "fork")
    process = context.Process(target=work, args=args, daemon=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that threads are not forked
        process.start()
    return process
