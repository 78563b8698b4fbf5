"""Ask for the rank of this process, and end it together with another one."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from multiprocessing.connection import Connection


def is_rank_zero() -> bool:
    """Whether this process is the one that prints and writes files: the only one, or rank 0 of torchrun's."""
    return int(os.environ.get("WORLD_SIZE", "1")) <= 1 or os.environ.get("RANK", "0") == "0"


def end_with(leash: Connection) -> None:
    """End this process as soon as the other end of a pipe is closed, at the latest when its holder has ended."""
    threading.Thread(target=_hold, args=(leash,), daemon=True).start()


def _hold(leash: Connection) -> None:
    with suppress(EOFError, OSError):
        leash.recv()
    os._exit(1)
