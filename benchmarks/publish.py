"""Put finished runs and the searches behind them into a folder of results, and make its page.

    python -m benchmarks.publish results/long-training --search default-6-none=out/s-6-none --run out/6-none out/6-batch

A search is a folder with the tuned.json that ``racecar search`` wrote; it becomes a line of tuned.jsonl under its name.
Of runs, the records are taken, without curves, and the arrays that figures show; records of the same nets that are
there already are replaced, also where another search had chosen their settings. Where two experiments share a folder of
runs, ``--experiment`` says which one's are taken.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from racecar.support.files import write_atomically, write_text
from racecar_lab.cli.report import report
from racecar_lab.experiments import EXPERIMENTS
from racecar_lab.report.shown import shown_arrays
from racecar_lab.running import packed, packed_arrays

SEARCHES = "tuned.jsonl"


def searches(folder: Path, found: dict[str, Path]) -> int:
    """Their number, new ones among them."""
    path = folder / SEARCHES
    lines = path.read_text().splitlines() if path.exists() else []
    known = {json.loads(line)["name"]: line for line in lines}
    for name, one in found.items():
        known[name] = json.dumps({"name": name, **json.loads((one / "tuned.json").read_text())})
    write_text(path, "".join(f"{known[name]}\n" for name in sorted(known)))
    return len(known)


def records(folder: Path, runs: list[Path], experiment: str = "") -> int:
    """How many were taken, of one experiment or of all."""
    texts = {path.name: path.read_text() for one in runs for path in sorted((one / "records").glob("*.json"))}
    taken = {name: one for name, text in texts.items() if experiment in ("", (one := json.loads(text))["experiment"])}
    if not taken:
        raise ValueError(f"no records{f' of {experiment}' if experiment else ''} in {', '.join(map(str, runs))}")
    drop_replaced(folder, list(taken.values()))
    (folder / "records").mkdir(parents=True, exist_ok=True)
    for name in taken:
        write_text(folder / "records" / name, texts[name])
    packed.pack(folder, ("curves",))
    (folder / "records").rmdir()
    return len(taken)


def arrays(folder: Path, runs: list[Path]) -> int:
    """How many tensors the folder's figures show, those of the runs among them."""
    known = packed.packed(folder)
    taken = [path for one in runs for path in (one / "arrays").glob("*.safetensors") if path.stem in known]
    if not taken:
        return 0
    for path in taken:
        with write_atomically(folder / "arrays" / path.name) as file:
            file.write(path.read_bytes())
    count = packed_arrays.pack_arrays(folder, shown_arrays(folder, EXPERIMENTS))
    (folder / "arrays").rmdir()
    return count


def drop_replaced(folder: Path, taken: list[dict[str, Any]]) -> None:
    """Drop records of nets that were searched again, and have other names now."""
    found = {id: one for id, one in packed.packed(folder).items() if isinstance(one, dict)}
    again, new = {_net(one) for one in taken if one["tuned"]}, {one["id"] for one in taken}
    kept = {id: one for id, one in found.items() if id in new or not (one["tuned"] and _net(one) in again)}
    if kept != found:
        packed.write_pack(folder, kept)


def _net(record: dict[str, Any]) -> str:
    """All of a net but what a search chose for it."""
    return json.dumps([record[name] for name in ("experiment", "variant", "seed", "stage", "config")], sort_keys=True)


def named(text: str) -> tuple[str, Path]:
    name, _, folder = text.partition("=")
    return name, Path(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--search", type=named, nargs="*", default=[], metavar="NAME=DIR")
    parser.add_argument("--run", type=Path, nargs="+", required=True, metavar="DIR")
    parser.add_argument("--experiment", default="", metavar="NAME")
    arguments = parser.parse_args()
    taken = records(arguments.folder, arguments.run, arguments.experiment)
    print(f"{taken} records, {searches(arguments.folder, dict(arguments.search))} searches")
    print(f"{arrays(arguments.folder, arguments.run)} arrays")
    report(arguments.folder)


if __name__ == "__main__":
    main()
