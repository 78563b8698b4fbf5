"""Records of runs: what a reader needs to make them again, written atomically."""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
from pathlib import Path

import torch


def circumstances(module: str, device: str) -> dict[str, object]:
    """The command, the versions and the machine of this run. The seed is 0 in every benchmark."""
    return {
        "command": " ".join(["python", "-m", module, *sys.argv[1:]]),
        "seed": 0,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name() if device.startswith("cuda") else f"CPU {platform.machine()}",
        "threads": torch.get_num_threads(),
    }


def write_json(path: Path, record: dict[str, object]) -> None:
    write_text(path, json.dumps(record, indent=1) + "\n")


def write_text(path: Path, text: str) -> None:
    """A reader never sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, suffix=".tmp", encoding="utf-8") as file:
        file.write(text)
    os.replace(file.name, path)
    print(f"wrote {path}", file=sys.stderr)
