"""``racecar inspect``: write a report of what a network learned, with tables and figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from racecar.cli.target import options
from racecar.support.console import command, note

Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="PATH",
        help="Folder of pictures (one subfolder per class, or none), or file .npy, .npz, .safetensors with arrays x "
        "and y. Pictures are cropped and resized to the input, with values in [0, 1]. Without it: noise.",
    ),
]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for report.md, report.json and the figures.")]
Layers = Annotated[
    str,
    typer.Option(
        "--layers",
        metavar="PATTERNS",
        help="Layers whose singular vectors to show, as 'conv1,layer4.*'. Without it: the first.",
    ),
]
Count = Annotated[int, typer.Option("--k", min=1, help="How many singular vectors.")]
Limit = Annotated[
    int | None, typer.Option("--limit", min=1, help="At most so many samples. Without it: 64, fewer of large ones.")
]
Lpips = Annotated[
    Path | None, typer.Option("--lpips", metavar="FILE", help="Weights of LPIPS, to compare pictures by it, too.")
]
Statistics = Annotated[
    str,
    typer.Option(
        "--statistics",
        metavar="WHICH",
        help="What batch norm uses: calibrated (its running ones, and in reverse those that the reverse data of "
        "these samples have), batch (of the samples, both ways) or running (of forward data, both ways).",
    ),
]

Activation = Annotated[
    str | None,
    typer.Option("--input-activation", metavar="NAME", help="Applied to the rebuilt input, as relu for pictures."),
]


def inspect(
    target: options.Target,
    shape: options.Input = "",
    data: Data = None,
    out: Out = Path("racecar-inspect"),
    weights: options.Weights = None,
    layers: Layers = "",
    k: Count = 16,
    limit: Limit = None,
    lpips: Lpips = None,
    statistics: Statistics = "calibrated",
    input_activation: Activation = None,
    seed: options.Seed = 0,
) -> None:
    """Write tables and figures of what a network learned: singular vectors, the reverse pass, information plane."""
    from datetime import UTC, datetime

    import torch

    import racecar
    from racecar.cli.inspect.findings import Chapter, write_report
    from racecar.cli.inspect.looked_at import prepare
    from racecar.cli.inspect.looks import STATISTICS, Choices, looks
    from racecar.cli.target.target import open_target
    from racecar.inspect import Lpips
    from racecar.reverse.input_activation import activation
    from racecar.support.files import check_folder
    from racecar.support.full import is_full
    from racecar.support.progress import bar

    if statistics not in STATISTICS:
        raise ValueError(f"--statistics must be one of {', '.join(STATISTICS)}, not {statistics!r}")
    activation(input_activation)  # refuses an unknown one before anything is done
    check_folder(out, "--out")
    choices = Choices(k, statistics, input_activation, Lpips.load(lpips) if lpips else None)
    opened = open_target(target, shape, weights, seed)
    subject = prepare(opened, data, limit, layers, seed)
    facts = {
        "model": str(opened),
        "weights": str(weights) if weights else f"as {target} makes them, with seed {seed}",
        "samples": subject.samples.source,
        "statistics": statistics,
        "seed": seed,
        "command": command(),
        "racecar": racecar.__version__,
        "torch": torch.__version__,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    tasks, sections = looks(subject, choices), []
    with bar("inspect", len(tasks)) as advance:
        for title, measure in tasks.items():
            advance(0, title)
            try:
                sections += measure()
            except (MemoryError, RuntimeError) as error:
                if not is_full(error):
                    raise
                raise ValueError(f"out of memory at {title}: try a smaller --limit or --input") from error
            except ValueError as error:  # this network does not allow it, for example with infinite activations
                note(f"{title}: left out, {error}")
                sections.append(Chapter(title.replace(" ", "_"), title.capitalize(), f"Left out: {error}."))
            advance(1, title)
    for section in sections:
        if section.finding:
            print(f"{section.title}: {section.finding}")
    for file in write_report(out, f"A look into {target}", facts, sections):
        print(file)
