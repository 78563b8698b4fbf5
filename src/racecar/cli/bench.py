"""``racecar bench``: what the reverse pass costs on this machine."""

from __future__ import annotations

import sys
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from racecar.cli.bench_values import kinds_of, step_options
from racecar.cli.target import options
from racecar.support.console import command

if TYPE_CHECKING:
    from torch import nn

    from racecar.bench.workload import Example, StepOptions

Device = Annotated[str, typer.Option("--device", help="cpu, cuda, cuda:1, …; without it cuda where there is one.")]
Models = Annotated[
    str,
    typer.Option(
        "--models",
        metavar="A,B",
        help="Any TARGET as package.module:callable, torchvision:NAME, timm:NAME; or, of the laboratory's nets, vgg19, "
        "resnet50, vit, resnet110, vgg16, vgg7, vgg7-narrow, resnet20, mlp, vit-tiny. Without it those that suit the "
        "device.",
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
Rounds = Annotated[int, typer.Option("--rounds", min=1, help="Timed rounds.")]
Profile = Annotated[
    bool, typer.Option("--profile", help="Also count the kernels of a step, and what share of their time are products.")
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
    rounds: Rounds = 30,
    profile: Profile = False,
    out: Out = None,
    show: Show = None,
) -> None:
    """Time training steps, plain and with the reverse pass; their memory, and their floor."""
    from racecar.bench import kernels, record, record_table
    from racecar.bench.run import recorded, run
    from racecar.support.files import check_folder

    if show is not None:
        print(record_table.markdown(record.read(show)))
        return
    if out is not None:
        check_folder(out.parent, "--out")
    kinds = kinds_of(fractions, every, gradients, modes)
    how = step_options(device, precision, compile_steps, graphs, combine, profile)
    names = names_of(models, shape, how)
    open_model = partial(open_any, shape=shape, batch=batch)
    made = recorded(run(names, open_model, how, kinds, rounds), command(), how, rounds, out)
    show_table(record_table.head(), record_table.rows(made), record_table.foot(made))
    if profile:
        show_table(kernels.HEAD, kernels.rows(made), kernels.FOOT)
    finish(made, out)


def laboratory_nets() -> Any:
    """The module with the laboratory's nets by name, which the library does not import; None without the laboratory."""
    return import_module("racecar_lab.networks.by_name") if find_spec("racecar_lab") else None


def open_any(name: str, shape: str, batch: int) -> tuple[nn.Module, Example]:
    """A net of the laboratory by its name, or any TARGET."""
    from racecar.cli.target.inputs import arguments, draw, with_batch
    from racecar.cli.target.target import open_target

    if ":" not in name:
        opened: tuple[nn.Module, Example] = laboratory_nets().open_net(name, batch)
        return opened
    target = open_target(name, shape)
    inputs = with_batch(target.inputs, batch) if batch else target.inputs
    return target.model, arguments(inputs, draw(inputs, 0, target.dtype))


def names_of(models: str, shape: str, how: StepOptions) -> list[str]:
    """The models that ``--models`` names; without it those of the laboratory that suit the device."""
    nets = laboratory_nets()
    known, usual = (nets.NETS, nets.USUAL["cuda" if how.cuda else "cpu"]) if nets else ((), ())
    names = [name.strip() for name in models.split(",") if name.strip()] or list(usual)
    if not names:
        raise ValueError("--models is needed without the laboratory: give a TARGET as torchvision:NAME")
    for name in names:
        if name not in known and ":" not in name:
            others = f", or one of {', '.join(known)}" if known else ""
            raise ValueError(f"unknown net {name!r}: give a TARGET as torchvision:NAME{others}")
    if len(set(names)) < len(names):
        raise ValueError(f"--models {models!r} names a net twice")
    if shape and all(name in known for name in names):
        raise ValueError(
            "--input is for a TARGET: nets of the laboratory have their own, and --batch sets their number"
        )
    return names


def show_table(head: Any, rows: Any, last: str) -> None:
    from racecar.support.console import print_table
    from racecar.support.table import table

    if sys.stdout.isatty():
        print_table(head, rows, last)
    else:
        print(f"{table(head, rows)}\n{last}")


def finish(made: dict[str, Any], out: Path | None) -> None:
    """Write the whole record, then say what failed: the exit status tells a script."""
    from racecar.bench.record import write_json

    if out is not None:
        write_json(out, made)  # also models that failed
    failed = [f"{model['model']}: {model['error']}" for model in made["models"] if model.get("error")]
    failed += [
        f"{model['model']}, {step['step']}: {step['error']}"
        for model in made["models"]
        for step in model.get("steps", ())
        if step["error"]
    ]
    if failed:
        more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        raise ValueError(f"failed: {failed[0]}{more}")
