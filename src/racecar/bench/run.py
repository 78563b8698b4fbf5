"""Models measured one after the other."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from racecar.bench import timing
from racecar.bench.kinds import Kind
from racecar.bench.measure import Measurement, Say, describe
from racecar.bench.record import circumstances, model_record
from racecar.bench.workload import OpenModel, StepOptions
from racecar.support.files import spared, write_json
from racecar.support.progress import bar


def run(
    names: Sequence[str], open_model: OpenModel, options: StepOptions, kinds: Sequence[Kind], rounds: int
) -> Iterator[dict[str, Any]]:
    """Measure one model after the other.

    Args:
        names: of the models.
        open_model: from a name to a model and its inputs.
        options: device, precision and so on.
        kinds: the kinds of steps.
        rounds: timed rounds.

    Yields:
        Each model's part of a record, as soon as it is measured; a model that failed has an "error" alone.
    """
    with bar("bench", len(names) * units(kinds, rounds)) as advance:
        for name in names:
            yield measure(name, open_model, options, kinds, rounds, advance)


def measure(
    name: str, open_model: OpenModel, options: StepOptions, kinds: Sequence[Kind], rounds: int, advance: Say
) -> dict[str, Any]:
    """One model's part of a record."""

    def say(done: int, note: str) -> None:
        advance(done, f"{name}: {note}")

    measurement = None
    try:
        with timing.fast_device(options.cuda):
            measurement = Measurement(name, open_model, options, kinds)
            measurement.prepare(say)
            burst, seconds = timing.in_turns(measurement.bursts(), rounds, options.cuda, say)
        return model_record(
            measurement.workload.description,
            measurement.details,
            kinds,
            seconds,
            flops=measurement.flops,
            burst=burst,
            graphs=options.graphs,
        )
    except Exception as error:
        return {"model": name, "error": describe(error)}
    finally:
        if measurement is not None:
            measurement.close()


def units(kinds: Sequence[Kind], rounds: int) -> int:
    """Units of work of one model, for a progress bar: steps to make, and rounds."""
    return len({kind.once() for kind in kinds}) + rounds


def recorded(
    models: Iterable[dict[str, Any]],
    command_line: str,
    options: StepOptions,
    rounds: int,
    out: Path | None,
    **settings: Any,
) -> dict[str, Any]:
    """The record of a run. It is also written to ``out`` whenever a model is measured.

    Args:
        models: what `run` yields.
        command_line: what was typed.
        options: how the steps are executed.
        rounds: timed rounds.
        out: a file; None: nothing is written.
        settings: more settings for the record.
    """
    began, done = time.perf_counter(), []
    settings = {**asdict(options), "precision": "bf16" if options.half else "float32", "rounds": rounds, **settings}
    record: dict[str, Any] = {**circumstances(command_line, options.device), "settings": settings}
    for model in models:
        done.append(model)
        record |= {"wall_s": time.perf_counter() - began, "models": done}
        if out is not None and not all(one.get("error") for one in done):
            with spared("the record so far"):
                write_json(out, record)
    if all(one.get("error") for one in done):
        raise ValueError(f"nothing could be measured: {done[0]['model']}: {done[0]['error']}")
    return record
