"""The command ``racecar bench``: time and memory of training steps with the reverse pass, on this machine."""

from __future__ import annotations

import sys
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from racecar.cli.bench_values import kinds_of, parse_step_options
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
    """Time training steps without and with the reverse pass, measure their memory, and compute their lower bound."""
    from racecar.bench import kernels, record, record_table
    from racecar.bench.run import recorded, run
    from racecar.support.files import check_folder

    if show is not None:
        print(record_table.markdown(record.read(show)))
        return
    if out is not None:
        check_folder(out.parent, "--out")
    kinds = kinds_of(fractions, every, gradients, modes)
    step_options = parse_step_options(device, precision, compile_steps, graphs, combine, profile)
    names = model_names(models, shape, step_options)
    open_named = partial(open_model, shape=shape, batch=batch)
    results = run(names, open_named, step_options, kinds, rounds)
    bench_record = recorded(results, command(), step_options, rounds, out)
    show_table(record_table.head(), record_table.rows(bench_record), record_table.foot(bench_record))
    if profile:
        show_table(kernels.HEAD, kernels.rows(bench_record), kernels.FOOT)
    finish(bench_record, out)


def laboratory_nets() -> Any:
    """The laboratory's module that opens nets by name; None if the laboratory is not installed."""
    return import_module("racecar_lab.networks.by_name") if find_spec("racecar_lab") else None


def open_model(name: str, shape: str, batch: int) -> tuple[nn.Module, Example]:
    """A model and its example inputs, from the name of one of the laboratory's nets or a TARGET."""
    from racecar.cli.target.inputs import arguments, draw, with_batch
    from racecar.cli.target.target import open_target

    if ":" not in name:
        opened: tuple[nn.Module, Example] = laboratory_nets().open_net(name, batch)
        return opened
    target = open_target(name, shape)
    inputs = with_batch(target.inputs, batch) if batch else target.inputs
    return target.model, arguments(inputs, draw(inputs, 0, target.dtype))


def model_names(models: str, shape: str, step_options: StepOptions) -> list[str]:
    """The names in ``--models``; without it those of the laboratory's nets that suit the device."""
    nets = laboratory_nets()
    known, default = (nets.NETS, nets.USUAL["cuda" if step_options.cuda else "cpu"]) if nets else ((), ())
    names = [name.strip() for name in models.split(",") if name.strip()] or list(default)
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


def show_table(head: Any, rows: Any, foot: str) -> None:
    """Print a table: formatted on a terminal, as Markdown elsewhere."""
    from racecar.support.console import print_table
    from racecar.support.table import table

    if sys.stdout.isatty():
        print_table(head, rows, foot)
    else:
        print(f"{table(head, rows)}\n{foot}")


def finish(bench_record: dict[str, Any], out: Path | None) -> None:
    """Write the record, also of models that failed, then raise if one failed, so that the exit status is not 0."""
    from racecar.bench.record import write_json

    if out is not None:
        write_json(out, bench_record)
    failed = [f"{model['model']}: {model['error']}" for model in bench_record["models"] if model.get("error")]
    failed += [
        f"{model['model']}, {step['step']}: {step['error']}"
        for model in bench_record["models"]
        for step in model.get("steps", ())
        if step["error"]
    ]
    if failed:
        more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        raise ValueError(f"failed: {failed[0]}{more}")
