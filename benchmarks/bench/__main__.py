"""`racecar bench` with what our published comparisons need: steps by hand, SRIP, many processes, nets of growing depth.

python -m benchmarks.bench --device cuda --fractions 1,1/8,1/16 --every 1,4 --out results/bench/h200.json
python -m benchmarks.bench --depth 10,30,100,300,1000 --fractions 1,1/8 --out results/bench/depth-cpu.json
python -m benchmarks.bench --show results/bench/h200.json
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated

import typer
from typer.main import get_command

from benchmarks.bench import depth as nets_of_depth
from benchmarks.bench.ahead import compile_ahead
from benchmarks.bench.kinds import ByHand, PublishedSrip, Srip
from benchmarks.bench.tables import BY_HAND_COLUMNS, compare_with_hand, markdown
from benchmarks.records import as_module
from racecar.bench import kernels, record, record_table
from racecar.bench.run import recorded, run
from racecar.cli import bench as command
from racecar.cli.app import USER_ERRORS, message
from racecar.cli.bench_values import fractions_of, kinds_of, numbers_of, parse_step_options
from racecar.cli.target import options
from racecar.support.console import one_line, warnings_as_notes
from racecar.support.files import check_folder

Hand = Annotated[bool, typer.Option("--by-hand/--no-by-hand", help="Steps written by hand, for nets of ours.")]
WithSrip = Annotated[bool, typer.Option("--srip/--no-srip", help="Steps with SRIP, ours and as published.")]
Jobs = Annotated[
    int, typer.Option("--jobs", metavar="N", min=0, help="Kinds of steps compiled at once, before; 0: as suits.")
]
Depth = Annotated[str, typer.Option("--depth", metavar="LIST", help="Plain nets of so many layers, as 10,100,1000.")]

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
    out: command.Out = None,
    show: command.Show = None,
) -> None:
    """Time training steps: plain, with the reverse pass, written by hand, with SRIP; their memory, and their floor."""
    if show is not None:
        print(markdown(record.read(show)))
        return
    if out is not None:
        check_folder(out.parent, "--out")
    if depth and (models or shape or batch):
        raise ValueError("nets of a depth are made for it: leave out --models, --input and --batch")
    kinds = kinds_of(fractions, every, gradients, modes)
    compiled = bool(compile_steps) if depth else compile_steps  # a thousand layers compile for long
    how = parse_step_options(device, precision, compiled, graphs, combine, profile)
    if depth:
        names, open_model = nets_of_depth.names(numbers_of(depth, "--depth")), nets_of_depth.open_net
        if graphs is None:  # they are captured without
            how = replace(how, graphs=how.cuda)
    else:
        names = command.model_names(models, shape, how)
        open_model = partial(command.open_model, shape=shape, batch=batch)
        kinds += [ByHand(fraction) for fraction in fractions_of(fractions)] if by_hand else []
        kinds += [Srip(), PublishedSrip()] if srip else []
    jobs = jobs or (max(1, (os.cpu_count() or 1) * 3 // 4) if how.cuda and how.compile else 1)
    if jobs > 1:
        compile_ahead(names, open_model, how, kinds, jobs)
    measured = map(compare_with_hand, run(names, open_model, how, kinds, rounds))
    results = recorded(measured, as_module("benchmarks.bench"), how, rounds, out, grow="depth" if depth else "")
    columns = BY_HAND_COLUMNS
    command.show_table(record_table.head(columns), record_table.rows(results, columns), record_table.foot(results))
    if profile:
        command.show_table(kernels.HEAD, kernels.rows(results), kernels.FOOT)
    if depth:
        slopes = nets_of_depth.rows(results["models"])
        command.show_table(nets_of_depth.HEAD, slopes, "slope ratio: to the plain step of the same nets.")
    command.finish(results, out)


def main(arguments: Sequence[str]) -> int:
    """Run the program and return its exit status; a user's error is one line."""
    try:
        with warnings_as_notes():
            return get_command(app).main(list(arguments), "benchmarks.bench", standalone_mode=False) or 0
    except USER_ERRORS as error:
        print(f"benchmarks.bench: {one_line(message(error))}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
