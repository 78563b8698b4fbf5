"""Processes that die at a given moment, and those that are alive."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from racecar_lab.running.job import Job
from tests.lab.tiny import STEPS, die, run


class Mortal:
    """Dies at the n-th moment of a kind: a "step" is done, a "record" is about to take its place; or "any": a step is
    done, a file is written but not on the disk, not in its place, or is."""

    def __init__(self, kind: str, last: int, log: Path) -> None:
        self.kind, self.left = kind, last
        self.log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.fsync, self.replace = os.fsync, os.replace
        os.fsync, os.replace = self._fsync, self._replace  # type: ignore[assignment]
        register_optimizer_step_post_hook(self._step)

    def _pass(self, kind: str = "any") -> None:
        if self.kind in (kind, "any"):
            self.left -= 1
            if self.left == 0:
                die()

    def _step(self, *_: Any) -> None:
        os.write(self.log, b"s")
        self._pass("step")

    def _fsync(self, file: int) -> None:
        self._pass()
        self.fsync(file)

    def _replace(self, source: Path, target: Path) -> None:
        self._pass("record" if target.parent.name == "records" else "any")
        self.replace(source, target)
        self._pass()


def mortal(
    jobs: Sequence[Job], folder: Path, engine: str, log: Path, kind: str = "any", last: int = 0, resume: bool = True
) -> None:
    """Run jobs, with a checkpoint after every step, until a moment comes; 0: to the end."""
    torch.set_num_threads(1)
    Mortal(kind, last, log)
    failures = run(jobs, folder, engine, interval=0.0, resume=resume)
    for failure in failures:
        print(failure.details)
    os._exit(1 if failures else 0)


def living(parent: int | None = None, session: int | None = None) -> set[int]:
    """Processes that run, of a parent or a session if one is given."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                state, *fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if state != "Z" and parent in (None, int(fields[0])) and session in (None, int(fields[2])):
                    found.add(int(entry.name))
    return found


def catches(pid: int, signum: int) -> bool:
    """Whether a process has a handler for a signal."""
    with suppress(OSError):
        caught = (Path("/proc") / str(pid) / "status").read_text().partition("SigCgt:")[2].split()[0]
        return bool(int(caught, 16) >> (signum - 1) & 1)
    return False


def wait_for(what: Callable[[], Any], seconds: float = 30.0) -> Any:
    end = time.monotonic() + seconds
    while not (found := what()) and time.monotonic() < end:
        time.sleep(0.02)
    return found


def started(log: Path) -> dict[int, str]:
    """Processes that have this file to log their steps in: pid → command line."""
    found = {}
    for pid in living():
        with suppress(OSError):
            if f"{STEPS}={log}\0".encode() in Path(f"/proc/{pid}/environ").read_bytes():
                found[pid] = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip()
    return found
