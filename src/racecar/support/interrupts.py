"""End a command cleanly and soon after Ctrl-C or SIGTERM, whatever it is doing, and say how to resume it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from types import FrameType
from typing import Any

from racecar.support.processes import is_rank_zero

WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
PATIENCE = 10.0
"""Seconds after a signal until the process is ended by force."""
ANSWER = 3.0
"""Seconds until it is ended by force if the main thread does not react, because a library or an import is busy."""
AGAIN = "run the same command again"

advice = AGAIN
"""What the message says about resuming; a command may set its own. Empty: no message."""
_heard = 0
"""The signal that was received first; 0: none so far."""
_raised = False
"""Whether a KeyboardInterrupt was raised in the main thread and not lost."""
_deferred = 0
"""Number of ``deferred`` and ``block_sigint`` blocks that are entered: KeyboardInterrupt waits until all are left."""
_over = False
"""Whether the command is over, and Python shuts down."""


def listen() -> None:
    """Install the signal handlers for the rest of this process. Commands call this, a library must not."""
    if not hasattr(signal, "pthread_kill"):
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    threading.Thread(target=_watch, args=(reader,), daemon=True).start()
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    sys.unraisablehook = _unraisable
    for one in WORDS:
        if signal.getsignal(one) is not signal.SIG_IGN:  # as a shell has it for what runs in the background
            signal.signal(one, _hear)


def heard() -> bool:
    """Whether a signal was received."""
    return bool(_heard)


def tell() -> int:
    """Print in one line what happened and how to resume; returns the exit status."""
    which = signal.Signals(_heard or signal.SIGINT)
    if advice and is_rank_zero():
        print(f"racecar: {WORDS[which]}; {advice}", file=sys.stderr, flush=True)
    return 128 + which


def end() -> None:
    """The command is over: signals from now on, while Python shuts down, end the process at once."""
    global _raised, _over
    _raised = _over = True


def _hear(signum: int, frame: FrameType | None) -> None:
    """The signal handler, which Python runs in the main thread: raise KeyboardInterrupt, once."""
    global _heard, _raised
    if _over and not _heard:
        with suppress(Exception):
            sys.stdout.flush()
        os._exit(128 + signum)
    _heard = _heard or signum
    if _raised or _deferred or _importing(frame):
        return  # a second signal changes nothing; one that comes at a bad time is repeated by _watch
    _raised = True
    raise KeyboardInterrupt


def _importing(frame: FrameType | None) -> bool:
    """Whether a module is being imported: it may swallow a KeyboardInterrupt or turn it into another error."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _unraisable(what: Any) -> None:
    """Let a KeyboardInterrupt that was lost in a destructor be raised again; show other errors there as usual."""
    global _raised
    if issubclass(what.exc_type, KeyboardInterrupt):
        _raised = False
    else:
        sys.__unraisablehook__(what)


def _watch(reader: int) -> None:
    """In a thread of its own, woken by the operating system: repeat a signal to a main thread that is busy, and end the
    process by force when time is up."""
    while (signum := os.read(reader, 1)[0]) not in WORDS:
        pass
    began = time.monotonic()
    while time.monotonic() - began < (PATIENCE if _raised or _deferred else ANSWER):
        time.sleep(0.05)
        if not _raised:
            signal.pthread_kill(threading.main_thread().ident or 0, signum)
    if os.isatty(2):
        os.write(2, b"\x1b[?25h")  # a progress bar may have hidden the cursor
    status = 128 + signum if _over else tell()
    end()
    os._exit(status)


@contextmanager
def deferred() -> Iterator[None]:
    """Context manager: an interrupt waits until its end. Where torch's C++ calls Python, as torch.func does, one may
    hit a destructor, and the process is aborted."""
    global _deferred, _raised
    main = threading.current_thread() is threading.main_thread()
    _deferred += main
    try:
        yield
    finally:
        _deferred -= main
    if main and _heard and not _raised and not _deferred:
        _raised = True
        raise KeyboardInterrupt


@contextmanager
def block_sigint() -> Iterator[None]:
    """Context manager: an interrupt waits until its end, signal handlers that others install are removed again, and
    processes that are started never get Ctrl-C, not even while they import: their parent ends them."""
    global _deferred
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # where it is started later, it unblocks the signal
    main = threading.current_thread() is threading.main_thread()
    _deferred += main
    handlers = {one: signal.getsignal(one) for one in WORDS if main}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        for one, handler in handlers.items():
            if handler is not None and signal.getsignal(one) is not handler:
                signal.signal(one, handler)
        _deferred -= main
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
