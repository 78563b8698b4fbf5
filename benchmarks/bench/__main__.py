"""`racecar bench` with what our published comparisons need: steps by hand, SRIP, many processes, nets that grow.

python -m benchmarks.bench --device cuda --fractions 1,1/8,1/16 --every 1,4 --out results/bench/h200.json
python -m benchmarks.bench --depth 10,30,100,300,1000 --figure docs/images/depth
python -m benchmarks.bench --show results/bench/h200.json
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from typer.main import get_command

from benchmarks.bench import growth
from benchmarks.bench.kinds import ByHand, PublishedSrip, Srip
from benchmarks.bench.side_by_side import run_side_by_side
from benchmarks.bench.tables import BY_HAND_COLUMNS, compare_with_hand, markdown
from benchmarks.records import as_module
from racecar.bench import kernels, record, record_table
from racecar.bench.run import recorded
from racecar.cli import bench as command
from racecar.cli.bench_values import fractions_of, kinds_of, numbers_of, parse_step_options
from racecar.cli.target import options
from racecar.support.console import one_line, warnings_as_notes
from racecar.support.files import check_folder

Hand = Annotated[bool, typer.Option("--by-hand/--no-by-hand", help="Steps written by hand, for nets of ours.")]
WithSrip = Annotated[bool, typer.Option("--srip/--no-srip", help="Steps with SRIP, ours and as published.")]
Jobs = Annotated[int, typer.Option("--jobs", metavar="N", min=0, help="Kinds of steps compiled at once; 0: as suits.")]
Depth = Annotated[str, typer.Option("--depth", metavar="LIST", help="Plain nets of so many layers, as 10,100,1000.")]
Width = Annotated[str, typer.Option("--width", metavar="LIST", help="Plain nets of so many channels.")]
Batches = Annotated[str, typer.Option("--batches", metavar="LIST", help="Plain nets with so many samples.")]
Figure = Annotated[
    Path | None, typer.Option("--figure", metavar="NAME", help="Draw the growth: NAME.svg and NAME.png.")
]

app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None, add_completion=False)


@app.command()
def bench(
    device: command.Device = "",
    models: command.Models = "",
    shape: options.Input = "",
    batch: command.Batch = 0,
    fractions: command.Fractions = "1,1/8,1/16",
    every: command.Every = "1",
    gradients: command.Gradients = "reverse",
    modes: command.Modes = "layerwise",
    precision: command.Precision = "",
    compile_steps: command.Compile = None,
    combine: command.Combine = False,
    graphs: command.Graphs = None,
    by_hand: Hand = True,
    srip: WithSrip = True,
    rounds: command.Rounds = 30,
    jobs: Jobs = 0,
    profile: command.Profile = False,
    depth: Depth = "",
    width: Width = "",
    batches: Batches = "",
    figure: Figure = None,
    out: command.Out = None,
    show: command.Show = None,
) -> None:
    """Time training steps: plain, with the reverse pass, written by hand, with SRIP; their memory, and their floor."""
    if show is not None:
        print(markdown(record.read(show)))
        return
    for path, option in ((out, "--out"), (figure, "--figure")):
        if path is not None:
            check_folder(path.parent, option)
    grow, values = growing(depth, width, batches)
    if figure is not None and not grow:
        raise ValueError("--figure draws growth: give --depth, --width or --batches as well")
    if grow and (models or shape or batch):
        raise ValueError("nets that grow are made for it: leave out --models, --input and --batch")
    kinds = kinds_of(fractions, every, gradients, modes)
    if not grow:
        kinds += [ByHand(fraction) for fraction in fractions_of(fractions)] if by_hand else []
        kinds += [Srip(), PublishedSrip()] if srip else []
    compiled = bool(compile_steps) if grow else compile_steps  # a thousand layers compile for long
    how = parse_step_options(device, precision, compiled, graphs, combine, profile)
    if grow and graphs is None:  # they are captured without
        how = replace(how, graphs=how.cuda)
    names = growth.names(grow, values) if grow else command.model_names(models, shape, how)
    open_model = growth.open_size if grow else partial(command.open_model, shape=shape, batch=batch)
    at_once = jobs or (max(1, (os.cpu_count() or 1) * 3 // 4) if how.cuda and how.compile else 1)
    measured = run_side_by_side(names, open_model, how, kinds, rounds, at_once)
    line = as_module("benchmarks.bench")
    results = recorded(map(compare_with_hand, measured), line, how, rounds, out, grow=grow)
    columns = BY_HAND_COLUMNS
    command.show_table(record_table.head(columns), record_table.rows(results, columns), record_table.foot(results))
    if profile:
        command.show_table(kernels.HEAD, kernels.rows(results), kernels.FOOT)
    if grow:
        rows = growth.rows(results["models"], grow)
        command.show_table(growth.head(grow), rows, "slope ratio: to the plain step of the same nets.")
    if figure is not None:
        from racecar.inspect.style import save

        save(growth.figure([model for model in results["models"] if not model.get("error")], grow), figure)
    command.finish(results, out)


def growing(depth: str, width: str, batches: str) -> tuple[str, list[int]]:
    """The option that grows and its values; ("", []) if none does."""
    options = {"depth": depth, "width": width, "batch": batches}
    asked = [(grow, text) for grow, text in options.items() if text]
    if len(asked) > 1:
        raise ValueError("give one of --depth, --width and --batches: one thing grows at a time")
    return (asked[0][0], numbers_of(asked[0][1], f"--{asked[0][0]}")) if asked else ("", [])


def main(arguments: Sequence[str]) -> int:
    """Run the program and return its exit status; a user's error is one line."""
    try:
        with warnings_as_notes():
            return get_command(app).main(list(arguments), "benchmarks.bench", standalone_mode=False) or 0
    except (ValueError, TypeError, ImportError, OSError, typer.BadParameter.__mro__[1]) as error:
        text = error.format_message() if hasattr(error, "format_message") else str(error)
        print(f"benchmarks.bench: {one_line(text)}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
