"""Options that the commands of the laboratory share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Name = Annotated[str, typer.Argument(metavar="NAME", help="Experiment, as `racecar list` names it.")]
Variants = Annotated[
    str, typer.Option("--variants", metavar="A,B", help="Some of Std, Ort, Pre, RR, lRR, RR1, WD, Drop.")
]
Seeds = Annotated[int, typer.Option("--seeds", metavar="N", min=0, help="How many; 0: as the experiment says.")]
First = Annotated[int, typer.Option("--first-seed", metavar="K", min=0, help="Seeds K, K + 1, …")]
Engine = Annotated[str, typer.Option("--engine", metavar="WHICH", help="here, vmap or ray.")]
Device = Annotated[str, typer.Option("--device", help="cpu, cuda, cuda:1, …")]
Data = Annotated[
    Path | None,
    typer.Option(
        "--data", metavar="DIR", exists=True, help="Data folder. Without it: $RACECAR_DATA, or the user's cache."
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="DIR",
        file_okay=False,
        help="Results folder; out/NAME without it, and out/NAME-quick for a quick run.",
    ),
]
SearchOut = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="DIR",
        file_okay=False,
        help="Results folder; out/NAME-search without it, and out/NAME-search-quick for a quick one.",
    ),
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on from checkpoints of unfinished stages.")]
Quick = Annotated[bool, typer.Option("--quick", help="A short form, to see that it works: no evidence.")]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="Change a setting; repeatable.")]
Coefficient = Annotated[
    list[str] | None,
    typer.Option("--coefficient", metavar="VARIANT=a,b", help="Coefficients of a variant's regulariser; repeatable."),
]
Tuned = Annotated[Path | None, typer.Option("--tuned", metavar="FILE", help="What `racecar search` chose.")]
Workers = Annotated[int, typer.Option("--workers", metavar="N", min=0, help="Processes at once; 0: as many as fit.")]
Compile = Annotated[bool, typer.Option("--compile", help="torch.compile the training step.")]
Graphs = Annotated[bool, typer.Option("--cuda-graphs", help="On a GPU: replay steps, for nets bound by launches.")]
Every = Annotated[float, typer.Option("--checkpoint-every", metavar="SECONDS", min=0, help="Between checkpoints.")]
Address = Annotated[str | None, typer.Option("--address", help="Of a Ray cluster; without it one on this machine.")]
Tensorboard = Annotated[bool, typer.Option("--tensorboard", help="Write scalars to DIR/tensorboard.")]
Over = Annotated[str, typer.Option("--over", metavar="FIELD=a,b,c", help="A setting, or weight: the coefficient.")]
