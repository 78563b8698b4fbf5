"""``racecar film``: input, output and rebuilt input of a smoke GAN over a plume, as an animation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder that racecar run smoke wrote into, with weights.")]
Out = Annotated[Path, typer.Option("--out", metavar="FILE", help="A .gif, or a .png that moves.")]
Variants = Annotated[
    str,
    typer.Option("--variants", metavar="A,B", help="Variants, as racecar run names them; each has a row of pictures."),
]
Data = Annotated[Path | None, typer.Option("--data", metavar="DIR", help="Folder of the data sets.")]
Seed = Annotated[
    int | None, typer.Option("--seed", help="Seed of the run. Without it: the smallest that all variants have.")
]
Plume = Annotated[
    int, typer.Option("--plume", help="Number of the plume, 0 to 19; those from 16 on are in no training set.")
]
Every = Annotated[int, typer.Option("--every", help="Show every N-th frame.", metavar="N")]


def film(
    folder: Folder,
    out: Out = Path("smoke.gif"),
    variants: Variants = "Std,RR",
    data: Data = None,
    seed: Seed = None,
    plume: Plume = 16,
    every: Every = 2,
) -> None:
    """Make a short film, under 1 MB, of a plume that a smoke GAN enlarges, and of its input as the reverse pass
    rebuilds it, from the weights of a finished run.

    Example: racecar film out/smoke --variants Std,RR --out smoke.gif
    """
    from racecar.support.files import check_folder
    from racecar_lab.experiments.smoke.film import film as write

    names = [name.strip() for name in variants.split(",") if name.strip()]
    if not names:
        raise ValueError("--variants: name at least one, as Std,RR")
    check_folder(out.absolute().parent, "--out")
    size = write(folder, out, names, data=data, seed=seed, plume=plume, every=every)
    print(f"{out} ({size / 1e3:.0f} kB)")
