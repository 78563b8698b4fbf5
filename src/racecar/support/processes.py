"""Which of several processes this is, and that those we start end with the one that started them."""

from __future__ import annotations

import multiprocessing
import os
import threading
from contextlib import suppress
from multiprocessing.connection import Connection


def is_rank_zero() -> bool:
    """Whether this process is the one, of those that torchrun started, that speaks and writes for all."""
    return int(os.environ.get("WORLD_SIZE", "1")) <= 1 or os.environ.get("RANK", "0") == "0"


def end_with_parent() -> None:
    """From now on: nobody waits for the work of an orphan."""
    threading.Thread(target=_wait, daemon=True).start()


def end_with(leash: Connection) -> None:
    """From now on, when nobody holds the other end any more: as ``end_with_parent``, or sooner if it is let go."""
    threading.Thread(target=_hold, args=(leash,), daemon=True).start()


def _hold(leash: Connection) -> None:
    with suppress(EOFError, OSError):
        leash.recv()
    os._exit(1)


def _wait() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
