"""Ctrl-C and SIGTERM: a command ends in order and soon, whatever it does, and says how to go on."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from types import FrameType
from typing import Any

from racecar.support.processes import is_rank_zero

WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
PATIENCE = 10.0
"""Seconds from a signal to the end of the command, in order or not."""
ANSWER = 3.0
"""Seconds until the main thread must have taken notice, which an import or a library that is busy puts off."""
AGAIN = "run the same command again"

advice = AGAIN
"""How to go on, as the command that runs would have it said; empty: nothing is said."""
at_end: list[Callable[[], None]] = []
"""What is left to do when the command is over, in order or not."""
_heard = 0
"""The signal that ends the command; 0: none."""
_raised = False
"""Whether it is on its way through the main thread."""
_deferred = 0
_over = False


def listen() -> None:
    """From now on, for the rest of this process: to be called by a command, not by a library."""
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
    """Whether a signal ends the command."""
    return bool(_heard)


def tell() -> int:
    """Say in one line what happened and how to go on; the exit status."""
    which = signal.Signals(_heard or signal.SIGINT)
    if advice and is_rank_zero():
        print(f"racecar: {WORDS[which]}; {advice}", file=sys.stderr, flush=True)
    return 128 + which


def end() -> None:
    """The command is over. A signal that comes while Python shuts down cannot make it untidy any more."""
    global _raised, _over
    _raised = _over = True
    while at_end:
        at_end.pop()()


def _hear(signum: int, frame: FrameType | None) -> None:
    """In the main thread, between two of its instructions."""
    global _heard, _raised
    if _over and not _heard:
        with suppress(Exception):
            sys.stdout.flush()
        os._exit(128 + signum)
    _heard = _heard or signum
    if _raised or _deferred or _importing(frame):
        return  # a second one changes nothing; what is put off, _watch repeats
    _raised = True
    raise KeyboardInterrupt


def _importing(frame: FrameType | None) -> bool:
    """Modules that are cut off while they begin may swallow it, or call it something else."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _unraisable(what: Any) -> None:
    """An interrupt that met a destructor is lost there: once more. All else is shown as usual."""
    global _raised
    if issubclass(what.exc_type, KeyboardInterrupt):
        _raised = False
    else:
        sys.__unraisablehook__(what)


def _watch(reader: int) -> None:
    """In a thread of its own, told by the operating system itself: the main one may be busy in a library."""
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
    """What happens meanwhile is interrupted right afterwards. An interrupt in Python that torch's C++ has called, as
    torch.func does all the time, may meet a destructor there, and the process is aborted."""
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
    """What happens meanwhile is not interrupted, but afterwards; handlers that others install are taken back. Processes
    that are started meanwhile never hear of Ctrl-C, not even while they import: their parent decides."""
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
