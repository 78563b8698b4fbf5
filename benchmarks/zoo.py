"""Reverse other people's models: plan, loss and gradients of torchvision's and timm's, as a table.

    python -m benchmarks.zoo --device cuda --out results/zoo

Random weights, nothing is downloaded. Each model is reversed in modes "auto" and "layerwise", and must give a finite
loss whose gradient reaches every constrained weight.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch

from benchmarks.records import as_module
from racecar import Racecar
from racecar.bench.record import circumstances, write_json
from racecar.support.files import write_text
from tests.gpu_zoo import GPU_MODELS


def reverse(name: str, device: str) -> dict[str, Any]:
    """One model's row."""
    model, x = GPU_MODELS[name]()
    model, x = model.to(device).train(), x.to(device)
    row: dict[str, Any] = {"model": name, "parameters": sum(p.numel() for p in model.parameters())}
    for mode in ("auto", "layerwise"):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            start = time.perf_counter()
            rr = Racecar(model, x, mode=mode)
            seconds = time.perf_counter() - start
        model.zero_grad(set_to_none=True)
        _, loss = rr(x)
        loss.backward()
        left_out = {entry.name: entry.reason for entry in rr.plan if not entry.constrained}
        owners = {entry.name: entry.layer.op.owner for entry in rr.plan if entry.constrained}
        without = [n for n, o in owners.items() if getattr(o.module, o.attribute).grad is None]
        row[mode] = {
            "layers": len(rr.plan),
            "constrained": sum(entry.constrained for entry in rr.plan),
            "from_reverse": sum(entry.constrained and entry.source == "reverse" for entry in rr.plan),
            "left_out": left_out,
            "loss": loss.item(),
            "finite": bool(torch.isfinite(loss)),
            "without_gradient": without,
            "plan_s": seconds,
            "warnings": sorted({str(warning.message) for warning in caught}),
        }
    return row


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as Markdown."""
    lines = [
        "| model | parameters | layers | constrained | from reverse | loss per layer, auto | layerwise | left out |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        if "error" in row:
            lines.append(f"| {row['model']} | | | | | | | {row['error']} |")
            continue
        auto, layerwise = row["auto"], row["layerwise"]
        left_out = "; ".join(f"{name}: {reason}" for name, reason in auto["left_out"].items()) or "-"
        lines.append(
            f"| {row['model']} | {row['parameters'] / 1e6:.1f} M | {auto['layers']} | {auto['constrained']} | "
            f"{auto['from_reverse']} | {auto['loss'] / max(1, auto['constrained']):.3g} | "
            f"{layerwise['loss'] / max(1, layerwise['constrained']):.3g} | {left_out} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--models", nargs="*", choices=sorted(GPU_MODELS), default=sorted(GPU_MODELS), metavar="NAME")
    parser.add_argument("--out", type=Path, help="folder for zoo.json and zoo.md")
    options = parser.parse_args()
    torch.manual_seed(0)
    rows, failed, start = [], [], time.perf_counter()
    for i, name in enumerate(options.models):
        print(f"[{i + 1}/{len(options.models)}] {name}", file=sys.stderr, flush=True)
        try:
            rows.append(reverse(name, options.device))
        except Exception as error:
            rows.append({"model": name, "error": f"{type(error).__name__}: {error}"})
        row = rows[-1]
        if "error" in row or any(not row[m]["finite"] or row[m]["without_gradient"] for m in ("auto", "layerwise")):
            failed.append(name)
    text = table(rows)
    print(text)
    if options.out:
        record = {
            "rows": rows,
            "wall_s": time.perf_counter() - start,
            **circumstances(as_module("benchmarks.zoo"), options.device),
        }
        write_json(options.out / "zoo.json", record)
        write_text(options.out / "zoo.md", text)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
