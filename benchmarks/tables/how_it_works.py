"""The blocks of docs/how-it-works.md: one small net, followed through the pipeline, with its real values."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from racecar import Racecar
from racecar.watch.recorder import Watch

NET = """\
net = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 2))
with torch.no_grad():
    net[0].weight.copy_(torch.tensor([[0.6, 0.8, 0.0], [0.0, 0.0, 1.0]]))
    net[0].bias.copy_(torch.tensor([0.0, 0.5]))
    net[2].weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 0.5]]))
    net[2].bias.copy_(torch.tensor([0.0, 1.0]))
x = torch.tensor([[1.0, 2.0, 1.0], [-2.0, 1.0, 2.0]])
rr = Racecar(net, x, mode="full", weight=1.0)
output, loss = rr(x)"""


@cache
def net() -> dict[str, Any]:
    """The variables of the page's first block, by name."""
    names: dict[str, Any] = {"torch": torch, "nn": nn, "Racecar": Racecar}
    exec(NET, names)  # the page shows the very lines that are run
    return names


def watch(names: dict[str, Any]) -> str:
    """Every call of a torch function, as racecar.watch sees it."""
    with Watch() as seen, torch.no_grad():
        names["net"](names["x"])
    calls = [f"{call.func.__name__:7}  {_row(call.args[0]):28}  {_row(call.out)}" for call in seen.calls]
    return "\n".join(["call     from                          to", *calls])


def run(names: dict[str, Any]) -> str:
    """d_m and d'_m of every layer, from the last to the first."""
    model, x, rr = names["net"], names["x"], names["rr"]
    with torch.no_grad():
        d = [x, model[:2](x), model(x)]
    rebuilt = rr.reconstruct(x)
    lines = [f"d3   {_row(d[2]):41}  the output: the reverse pass starts here"]
    for m, how in ((2, "relu((d3 − b2) W2)"), (1, "(d2' − b1) W1")):
        lines.append(f"d{m}   {_row(d[m - 1]):41}  {'after relu' if m > 1 else 'the input'}")
        lines.append(f"d{m}'  {_row(rebuilt[m - 1]):41}  {how}")
    return "\n".join(lines)


def terms(names: dict[str, Any]) -> str:
    numbered = enumerate(names["rr"].terms.items(), 1)
    lines = [f"layer {name!r}: Σ(d{m} − d{m}')² / Σd{m}² = {term:.4f}" for m, (name, term) in numbered]
    return "\n".join([*lines, f"loss: λ · their mean = {names['loss']:.4f}"])


def _row(values: Tensor) -> str:
    return "  ".join("(" + ", ".join(f"{value:g}" for value in _short(line)) + ")" for line in values)


def _short(line: Tensor) -> list[float]:
    return [round(value, 3) + 0.0 for value in line.tolist()]


BLOCKS: dict[str, tuple[str, Callable[[dict[str, Any]], str]]] = {
    "net": ("python", lambda names: NET),
    "watch": ("", watch),
    "plan": ("", lambda names: str(names["rr"].plan)),
    "run": ("", run),
    "terms": ("", terms),
}


def block(_: Path, name: str) -> str:
    """One of the page's blocks of code."""
    kind, text = BLOCKS[name]
    return f"```{kind}\n{text(net())}\n```"
