"""``racecar bench``: what the reverse pass costs on this machine."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from fractions import Fraction
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from racecar.cli.target import options
from racecar.support.console import command

if TYPE_CHECKING:
    from torch import nn

    from racecar.bench.workload import Circumstances, Example, Open

MOST = 1_000_000
"""The largest of the numbers that grow, and of the steps between two reverse passes: a larger one is a slip."""

Device = Annotated[str, typer.Option("--device", help="cpu, cuda, cuda:1, …; without it cuda where there is one.")]
Models = Annotated[
    str,
    typer.Option(
        "--models",
        metavar="A,B",
        help="vgg19, resnet50, vit, resnet110, vgg16, vgg7, vgg7-narrow, resnet20, mlp, vit-tiny, or any TARGET as "
        "package.module:callable, torchvision:NAME, timm:NAME. Without it those that suit the device.",
    ),
]
Batch = Annotated[int, typer.Option("--batch", metavar="N", min=0, help="Samples; 0: as usual for each net.")]
Fractions = Annotated[str, typer.Option("--fractions", metavar="LIST", help="Slices of the batch, as 1,1/8,1/16.")]
Every = Annotated[str, typer.Option("--every", metavar="LIST", help="Reverse pass on every k-th step, as 1,4.")]
Gradients = Annotated[
    str, typer.Option("--gradients", metavar="LIST", help="What the gradient reaches, as both,reverse,weights.")
]
Modes = Annotated[str, typer.Option("--modes", metavar="LIST", help="Modes of the loss, as layerwise,linear.")]
Precision = Annotated[
    str, typer.Option("--precision", help="bf16 (autocast) or float32; without it what suits the device.")
]
Compile = Annotated[
    bool | None, typer.Option("--compile/--no-compile", help="torch.compile the steps; the default on cuda.")
]
Combine = Annotated[
    bool, typer.Option("--combine", help="Compiled steps: inductor's combo_kernels, short kernels put into one.")
]
Graphs = Annotated[
    bool | None,
    typer.Option("--graphs/--no-graphs", help="Whole steps as CUDA graphs; the default where they are compiled."),
]
ByHand = Annotated[bool, typer.Option("--by-hand/--no-by-hand", help="Steps written by hand, for nets of ours.")]
Srip = Annotated[bool, typer.Option("--srip/--no-srip", help="Steps with SRIP, ours and as published.")]
Rounds = Annotated[int, typer.Option("--rounds", min=1, help="Timed rounds.")]
Jobs = Annotated[int, typer.Option("--jobs", metavar="N", min=0, help="Kinds of steps compiled at once; 0: as suits.")]
Profile = Annotated[
    bool, typer.Option("--profile", help="Also count the kernels of a step, and what share of their time are products.")
]
Depth = Annotated[str, typer.Option("--depth", metavar="LIST", help="Plain nets of so many layers, as 10,100,1000.")]
Width = Annotated[str, typer.Option("--width", metavar="LIST", help="Plain nets of so many channels.")]
Batches = Annotated[str, typer.Option("--batches", metavar="LIST", help="Plain nets with so many samples.")]
Figure = Annotated[
    Path | None, typer.Option("--figure", metavar="NAME", help="Draw the growth: NAME.svg and NAME.png.")
]
Out = Annotated[Path | None, typer.Option("--out", metavar="FILE", dir_okay=False, help="Write a JSON record.")]
Show = Annotated[
    Path | None,
    typer.Option("--show", metavar="FILE", exists=True, dir_okay=False, help="Print a record as Markdown, no more."),
]


def bench(
    device: Device = "",
    models: Models = "",
    shape: options.Input = "",
    batch: Batch = 0,
    fractions: Fractions = "1,1/8,1/16",
    every: Every = "1",
    gradients: Gradients = "reverse",
    modes: Modes = "layerwise",
    precision: Precision = "",
    compile_steps: Compile = None,
    combine: Combine = False,
    graphs: Graphs = None,
    by_hand: ByHand = True,
    srip: Srip = True,
    rounds: Rounds = 30,
    jobs: Jobs = 0,
    profile: Profile = False,
    depth: Depth = "",
    width: Width = "",
    batches: Batches = "",
    figure: Figure = None,
    out: Out = None,
    show: Show = None,
) -> None:
    """Time training steps: plain, with the reverse pass, written by hand, with SRIP; their memory, and their floor."""
    from racecar.bench import kernels, record, record_table
    from racecar.bench.kinds import kinds
    from racecar.bench.run import Records, run
    from racecar.support.files import check_folder, spared, write_json

    if show is not None:
        print(markdown(record.read(show)))
        return
    for path, option in ((out, "--out"), (figure, "--figure")):
        if path is not None:
            check_folder(path.parent, option)
    growth, (grow, values) = _laboratory("growth"), _growth(depth, width, batches)
    if figure is not None and not grow:
        raise ValueError("--figure draws growth: give --depth, --width or --batches as well")
    if grow and (models or shape or batch):
        raise ValueError("nets that grow are made for it: leave out --models, --input and --batch")
    asked = _fractions(fractions), _numbers(every, "--every")
    chosen = kinds(*asked, by_hand and not grow, srip and not grow, *_choices(gradients, modes))
    how = _circumstances(device, precision, compile_steps, graphs, bool(grow))
    if combine and not how.compile:
        raise ValueError("--combine is an option of the compiler: give --compile as well")
    how = replace(how, combine=combine, profile=profile)
    names = growth.names(grow, values) if grow else _names(models, shape, how)
    open_model: Open = growth.open_size if grow else partial(open_any, shape=shape, batch=batch)
    settings = {**asdict(how), "precision": "bf16" if how.half else "float32", "rounds": rounds, "grow": grow}
    began, about = time.perf_counter(), record.circumstances(command(), how.device)

    def whole(found: Records) -> dict[str, Any]:
        return {**about, "settings": settings, "wall_s": time.perf_counter() - began, "models": found}

    def keep(found: Records) -> None:
        if out is not None and not all(model.get("error") for model in found):
            with spared("the record so far"):
                write_json(out, whole(found))

    side_by_side = jobs or (max(1, (os.cpu_count() or 1) * 3 // 4) if how.cuda and how.compile else 1)
    found = run(names, open_model, how, chosen, rounds, side_by_side, keep)
    made = whole(found)
    if all(model.get("error") for model in found):
        raise ValueError(f"nothing could be measured: {found[0]['model']}: {found[0]['error']}")
    _print(record_table.HEAD, record_table.rows(made), record_table.foot(made))
    if profile:
        _print(kernels.HEAD, kernels.rows(made), kernels.FOOT)
    if grow:
        _print(growth.head(grow), growth.rows(found, grow), "slope ratio: to the plain step of the same nets.")
    if out is not None:
        record.write_json(out, made)  # also those that failed
    if figure is not None:
        from racecar.inspect.style import save

        save(growth.figure([model for model in found if not model.get("error")], grow), figure)
    _complain(found)


def _laboratory(module: str) -> Any:
    """A module of ``racecar_lab.bench``, by name: nets of the laboratory, which the library does not import."""
    return import_module(f"racecar_lab.bench.{module}")


def open_any(name: str, shape: str, batch: int) -> tuple[nn.Module, Example]:
    """A net of ours by its name, or any TARGET."""
    from racecar.cli.target.inputs import arguments, draw, with_batch
    from racecar.cli.target.target import open_target

    models = _laboratory("models")
    if name in models.NETS:
        opened: tuple[nn.Module, Example] = models.open_net(name, batch)
        return opened
    target = open_target(name, shape)
    inputs = with_batch(target.inputs, batch) if batch else target.inputs
    return target.model, arguments(inputs, draw(inputs, 0, target.dtype))


def _names(models: str, shape: str, how: Circumstances) -> list[str]:
    known = _laboratory("models")
    usual = known.USUAL["cuda" if how.cuda else "cpu"]
    names = [name.strip() for name in models.split(",") if name.strip()] or list(usual)
    for name in names:
        if name not in known.NETS and ":" not in name:
            raise ValueError(
                f"unknown net {name!r}: give a TARGET as torchvision:NAME, or one of {', '.join(known.NETS)}"
            )
    if len(set(names)) < len(names):
        raise ValueError(f"--models {models!r} names a net twice")
    if shape and all(name in known.NETS for name in names):
        raise ValueError("--input is for a TARGET: nets of ours have inputs of their own, --batch changes their number")
    return names


def _circumstances(
    device: str, precision: str, compile_steps: bool | None, graphs: bool | None, grows: bool
) -> Circumstances:
    import torch

    from racecar.bench.workload import Circumstances

    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        kind = torch.device(device).type
    except RuntimeError:
        raise ValueError(f"unknown device {device!r}: give cpu, cuda or cuda:1") from None
    if kind not in ("cpu", "cuda"):
        raise ValueError(f"bench knows cpu and cuda, not {device!r}")
    cuda = kind == "cuda"
    if cuda and not torch.cuda.is_available():
        raise ValueError("--device cuda: there is no CUDA device here")
    if precision not in ("", "bf16", "float32"):
        raise ValueError(f"--precision must be bf16 or float32, not {precision!r}")
    if graphs and not cuda:
        raise ValueError("--graphs needs --device cuda")
    compiled = cuda and not grows if compile_steps is None else compile_steps  # a thousand layers compile for long
    return Circumstances(
        device=device,
        half=precision == "bf16" or (not precision and cuda),
        compile=compiled,
        graphs=cuda and (compiled or grows) if graphs is None else graphs,
    )


def _growth(depth: str, width: str, batches: str) -> tuple[str, list[int]]:
    given = {"depth": depth, "width": width, "batch": batches}
    asked = [(grow, text) for grow, text in given.items() if text]
    if len(asked) > 1:
        raise ValueError("give one of --depth, --width and --batches: one thing grows at a time")
    return (asked[0][0], _numbers(asked[0][1], f"--{asked[0][0]}")) if asked else ("", [])


def _numbers(text: str, option: str) -> list[int]:
    try:
        numbers = [int(one) for one in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or not 1 <= min(numbers) <= max(numbers) <= MOST or len(set(numbers)) < len(numbers):
        raise ValueError(
            f"{option} {text!r:.80}: whole numbers of at least 1 and at most {MOST:,}, each once, as 1,4,16"
        )
    return numbers


def _fractions(text: str) -> list[float]:
    try:
        found = [float(Fraction(one.strip())) for one in text.split(",")]
    except (ValueError, ZeroDivisionError, OverflowError):
        found = []
    if not found or not all(0 < one <= 1 for one in found) or len(set(found)) < len(found):
        raise ValueError(f"--fractions {text!r}: give different numbers above 0 and up to 1, as 1,1/8,1/16")
    return found


def _choices(gradients: str, modes: str) -> list[list[str]]:
    """The names that ``--gradients`` and ``--modes`` give, each a list; an error for others."""
    from racecar.plan.plan import MODES
    from racecar.reverse.terms import GRADIENTS

    lists = []
    for option, text, known in (("--gradients", gradients, GRADIENTS), ("--modes", modes, MODES)):
        names = [one.strip() for one in text.split(",")]
        if not set(names) <= set(known) or len(set(names)) < len(names):
            raise ValueError(f"{option} {text!r}: give different ones of {', '.join(known)}")
        lists.append(names)
    return lists


def markdown(made: Mapping[str, Any]) -> str:
    from racecar.bench import kernels, record_table

    text, grow = record_table.markdown(made), made["settings"].get("grow")
    more: list[Sequence[Sequence[str]]] = []
    if grow:
        growth = _laboratory("growth")
        more.append([growth.head(grow), ["---"] * 5, *growth.rows(made["models"], grow)])
    if rows := kernels.rows(made):
        more.append([kernels.HEAD, ["---", "---", *["---:"] * (len(kernels.HEAD) - 2)], *rows])
    for lines in more:
        text += "\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return text + (f"\n\n{kernels.FOOT}" if rows else "")


def _print(head: Any, rows: Any, last: str) -> None:
    from racecar.support.console import print_table
    from racecar.support.table import table

    if sys.stdout.isatty():
        print_table(head, rows, last)
    else:
        print(f"{table(head, rows)}\n{last}")


def _complain(found: list[dict[str, Any]]) -> None:
    """Say so in the end if something failed: the status tells a script."""
    failed = [f"{model['model']}: {model['error']}" for model in found if model.get("error")]
    failed += [
        f"{model['model']}, {step['step']}: {step['error']}"
        for model in found
        for step in model.get("steps", ())
        if step["error"]
    ]
    if failed:
        more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        raise ValueError(f"failed: {failed[0]}{more}")
