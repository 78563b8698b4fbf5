"""Start another process in a test."""

import warnings
from collections.abc import Callable
from multiprocessing.process import BaseProcess

import torch


def started(work: Callable[..., object], *args: object, daemon: bool = True) -> BaseProcess:
    """A process that runs ``work``: forked, so that it has imported all; not with a CUDA device, whose threads of
    autograd cannot be forked. Daemons end with the test, and may start no process themselves."""
    context = torch.multiprocessing.get_context("spawn" if torch.cuda.is_available() else "fork")
    process = context.Process(target=work, args=args, daemon=daemon)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that threads are not forked
        process.start()
    return process
