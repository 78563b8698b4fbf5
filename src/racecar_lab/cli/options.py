"""The options that ``run``, ``sweep`` and ``search`` have in common."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="Experiment, as `racecar list` names it, or one of your own as package.module:CLASS."
    ),
]
Own = Annotated[
    list[str] | None,
    typer.Option(
        "--experiment",
        metavar="MODULE:CLASS",
        help="An experiment of your own, package.module:CLASS, of which there are records; repeatable.",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="DIR",
        file_okay=False,
        help="Results folder. Without it out/NAME; of a search out/NAME-search; with -quick or -other-data behind it.",
    ),
]
Tuned = Annotated[
    Path | None,
    typer.Option("--tuned", metavar="FILE", help="What `racecar search` chose; one of several: FILE.jsonl#NAME."),
]
Rates = Annotated[
    str, typer.Option("--lr", metavar="a,b,c", help="Learning rates to try; without it, those of the experiment.")
]
Over = Annotated[str, typer.Option("--over", metavar="FIELD=a,b,c", help="A setting; weight: λ of every regulariser.")]


@dataclass(frozen=True, kw_only=True)
class CommandOptions:
    """Options of trainings; every field is an option of each command. Fields with the name of a field of ``RunOptions``
    are passed on unchanged."""

    variants: Annotated[
        str,
        typer.Option(
            "--variants",
            metavar="A,B",
            help="Some of Std, Ort, Pre, RR, lRR, RR1, Lin, WD, Drop; of streams some of its methods.",
        ),
    ] = ""
    seeds: Annotated[int, typer.Option("--seeds", metavar="N", min=0, help="How many; 0: as the experiment says.")] = 0
    first: Annotated[
        int | None,
        typer.Option(
            "--first-seed", metavar="K", min=0, help="Seeds K, K + 1, …; without it from 0, in a search from its own."
        ),
    ] = None
    engine: Annotated[str, typer.Option("--engine", metavar="WHICH", help="here, vmap or ray.")] = "here"
    device: Annotated[str, typer.Option("--device", help="cpu, cuda, cuda:1, …")] = "cpu"
    data: Annotated[
        Path | None,
        typer.Option(
            "--data", metavar="DIR", exists=True, help="Data folder. Without it: $RACECAR_DATA, or the user's cache."
        ),
    ] = None
    other_data: Annotated[
        bool, typer.Option("--other-data", help="Take data files that are not the published ones: no evidence.")
    ] = False
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from checkpoints of unfinished stages; a search always does.")
    ] = False
    quick: Annotated[bool, typer.Option("--quick", help="A short form, to see that it works: no evidence.")] = False
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="Change a setting; repeatable.")
    ] = None
    weight: Annotated[
        list[str] | None,
        typer.Option(
            "--weight",
            metavar="VARIANT=a,b",
            help="Weights λ of a variant's regulariser, in a search those that it tries; repeatable.",
        ),
    ] = None
    workers: Annotated[
        int, typer.Option("--workers", metavar="N", min=0, help="Processes at once; 0: as many as fit.")
    ] = 0
    compile: Annotated[bool, typer.Option("--compile", help="torch.compile the training step.")] = False
    interval: Annotated[
        float, typer.Option("--checkpoint-every", metavar="SECONDS", min=0, help="Time between checkpoints.")
    ] = 60.0
    address: Annotated[
        str | None,
        typer.Option("--address", help="Address of a Ray cluster; without it, Ray is started on this machine."),
    ] = None
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write scalars to DIR/tensorboard.")] = False
    budget: Annotated[
        bool,
        typer.Option("--budget", help="Only for streams: estimate the time of every method, print it, and stop."),
    ] = False
    graphs: Annotated[
        bool, typer.Option("--cuda-graphs", help="On a GPU: replay steps, for nets bound by launches.")
    ] = False


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command for typer, whose parameters are those of ``command`` followed by the fields of ``CommandOptions``.
    ``command`` is called with ``options=CommandOptions(…)`` instead of the fields."""
    hints = typing.get_type_hints(CommandOptions, include_extras=True)
    kind = inspect.Parameter.KEYWORD_ONLY
    shared = [
        inspect.Parameter(f.name, kind, default=f.default, annotation=hints[f.name]) for f in fields(CommandOptions)
    ]
    signature = inspect.signature(command, eval_str=True).parameters
    parameters = [*(signature[name].replace(kind=kind) for name in signature if name != "options"), *shared]

    @wraps(command)
    def call(**arguments: Any) -> None:
        options = CommandOptions(**{f.name: arguments.pop(f.name) for f in fields(CommandOptions)})
        command(**arguments, options=options)

    call.__dict__["__signature__"] = inspect.Signature(parameters)  # typer reads this
    return call
