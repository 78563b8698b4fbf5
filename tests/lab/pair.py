"""What two processes of torchrun's agent do: networks that take turns, a command, and one that has no end."""

from __future__ import annotations

import os
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path

import torch

from racecar.cli import main
from racecar.support.files import write_json
from racecar_lab.experiments import EXPERIMENTS
from tests.lab import toy
from tests.lab.tiny import Slow, Tiny

SETTING = {
    "scales": ("sum", "mean"), "epochs": 1, "batch": 6, "valid": 0.2, "clip": 0.5, "every": 2,
    "raises": (1,), "infinite": (2,),
}  # fmt: skip
"""Seed 1 cannot be measured, which one process does for both; seed 2 diverges in the other's half of a batch."""


def free_port(file: Path) -> str:
    """One that the first process finds, and tells the other by a file: just before it is used, or another program could
    take it meanwhile."""
    if os.environ["RANK"] == "0":
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            write_json(file, one.getsockname()[1])
    while not file.exists():
        time.sleep(0.01)
    return file.read_text().strip()


def command(port: Path, *arguments: str) -> None:
    """``racecar`` as if torchrun had started it; processes that meet again do so at another port, by themselves."""
    os.environ |= {"MASTER_PORT": free_port(port), "TORCHELASTIC_USE_AGENT_STORE": "False"}
    sys.argv[1:] = arguments
    with suppress(SystemExit):
        main()


def both(folder: Path) -> None:
    torch.set_num_threads(1)
    EXPERIMENTS["tiny"], EXPERIMENTS["slow"] = Tiny(), Slow()
    toy.main(folder / "turns")
    settings = [f"{name}={','.join(map(str, v)) if isinstance(v, tuple) else v}" for name, v in SETTING.items()]
    given = ["--variants=Std,Ort,RR", "--seeds=3", "--tensorboard", *(f"--set={one}" for one in settings)]
    command(folder / "first port", "run", "tiny", *given, f"--out={folder / 'two'}")
    given = ["--variants=RR", "--seeds=1", "--checkpoint-every=0", "--set=scales=mean"]
    command(folder / "second port", "run", "slow", *given, f"--out={folder / 'cut'}")
