"""Finished runs as they are published: tables that a spreadsheet, pandas and ``git diff`` can read.

A folder has

* ``runs.csv``: a line for each run: its id and seed, what was measured, what it cost, and the names of its lines in
* ``settings.csv``: experiment, variant, coefficient, configuration …, and
* ``made.jsonl``: how runs were made: command, commit, versions, device;
* ``details.jsonl``: curves and tables, which do not fit into cells, a line for each run that has any; a table of rows
  with the same names is written as its columns;
* ``arrays.safetensors``: the arrays that figures show; a tensor is named "id/name";
* ``SHA256SUMS``: checksums of these files, as ``sha256sum --check`` reads them.

A cell is JSON, except that a text is written without quotes; an empty cell means that there is no such value. Lines of
JSON alone, each with all of a run, would be 47 MB for the runs under ``results/``, and 20 MB with their settings apart,
because each line repeats the names of its fields; as tables they are 10 MB, and all of ``results/`` must stay below 20.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from racecar.support.extras import need
from racecar.support.files import write_atomically
from racecar_lab.running.record import FORMAT, check_record

RUNS, SETTINGS, MADE, DETAILS, ARRAYS = "runs.csv", "settings.csv", "made.jsonl", "details.jsonl", "arrays.safetensors"
SUMS = "SHA256SUMS"
TEXTS = {"id", "setting", "made", "parent", "status", "note", "finished"}
TEXTS |= {"experiment", "variant", "stage", "task", "purpose"}
"""Columns that hold nothing but text: an id may look like a number."""
_OWN = ("seed", "parent", "status", "note", "dead", "metrics", "cost")
"""The fields of ``runs.csv`` besides the names of lines; those of parts such as metrics have a column each."""
_SETTING = ("experiment", "variant", "coefficient", "stage", "task", "regularised", "purpose", "other_data")
_EMPTY: dict[str, Any] = {"coefficient": None, "parent": None, "dead": None, "other_data": []}
_NONE: dict[str, Any] = {name: {} for name in ("config", "tuned", "metrics", "cost", "curves", "tables", "sha256")}

Records = Mapping[str, list[dict[str, Any]]]
"""Records by id: one for each setting that a run stands for."""


def read_published(folder: Path) -> Records:
    """The records of a published folder; none if it is not published.

    Raises:
        ValueError: a file is not the one that was written.
    """
    if not (folder / RUNS).exists():
        return {}
    files = {name: _read(folder, name) for name in (RUNS, SETTINGS, MADE, DETAILS)}
    return _records(files, str(folder / RUNS))


def _records(files: Mapping[str, bytes], where: str) -> Records:
    """Records from the contents of the files."""
    settings = {one.pop("setting"): one for one in _read_table(files[SETTINGS])}
    made = {one.pop("made"): one for one in _read_lines(files[MADE])}
    details = {one.pop("id"): one for one in _read_lines(files[DETAILS])}
    records: dict[str, list[dict[str, Any]]] = {}
    for one in _read_table(files[RUNS]):
        how = {**made[one.pop("made")], "finished": one.pop("finished")}
        setting, more = settings[one.pop("setting")], details.get(one["id"], {})
        tables = {name: _rows(table) for name, table in more.get("tables", {}).items()}
        record = {"format": FORMAT, **_EMPTY, **_NONE, **setting, **one, **more, "tables": tables, "made": how}
        check_record(record, f"run {record['id']} of {where}")
        records.setdefault(record["id"], []).append(record)
    return records


def read_arrays(folder: Path) -> dict[str, dict[str, Tensor]]:
    """The arrays of a published folder by run and name."""
    found: dict[str, dict[str, Tensor]] = {}
    if (folder / ARRAYS).exists():
        for whole, tensor in need("safetensors.torch", "lab").load(_read(folder, ARRAYS)).items():
            id, _, name = whole.partition("/")
            found.setdefault(id, {})[name] = tensor
    return found


def write_published(
    folder: Path, records: Iterable[Mapping[str, Any]], arrays: Mapping[str, Mapping[str, Tensor]]
) -> None:
    """Write the files of a folder again, so that they hold these records and arrays and nothing else."""
    records = sorted(records, key=lambda record: (record["made"].get("finished", ""), record["id"]))
    settings: dict[str, Any] = {}
    made: dict[str, Any] = {}
    details: dict[str, Any] = {}
    runs: list[dict[str, Any]] = []
    for record in records:
        setting = {name: record[name] for name in _SETTING} | {name: record[name] for name in ("config", "tuned")}
        how = {name: value for name, value in record["made"].items() if name != "finished"}
        more = {name: record[name] for name in ("curves", "tables") if record[name]}
        names = {"setting": _name(setting, settings), "made": _name(how, made)}
        if more:
            tables = {name: _columns(table) for name, table in record["tables"].items()}
            details[record["id"]] = {"id": record["id"], **more} | ({"tables": tables} if tables else {})
        own = {name: record[name] for name in _OWN}
        runs.append({"id": record["id"], **names, **own, "finished": record["made"].get("finished", "")})
    columns = _names(runs), _names({"setting": name, **setting} for name, setting in settings.items())
    order = {name: i for i, name in enumerate(sorted(settings, key=lambda name: _key(settings[name])))}
    runs.sort(key=lambda run: (order[run["setting"]], run["seed"], run["id"]))
    files = {
        RUNS: _table(columns[0], runs),
        SETTINGS: _table(columns[1], [{"setting": name, **settings[name]} for name in order]),
        MADE: _lines({"made": name, **made[name]} for name in sorted(made, key=lambda name: _key(made[name]))),
        DETAILS: _lines(details[id] for id in dict.fromkeys(run["id"] for run in runs) if id in details),
    }
    _compare(records, _records(files, str(folder / RUNS)))
    tensors = {f"{id}/{name}": tensor for id, some in arrays.items() for name, tensor in some.items()}
    if tensors:
        files[ARRAYS] = need("safetensors.torch", "lab").save(tensors)
    files[SUMS] = "".join(f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files)).encode()
    for name, content in files.items():  # the checksums last: without them the others are not read
        with write_atomically(folder / name) as file:
            file.write(content)
    if not tensors:
        (folder / ARRAYS).unlink(missing_ok=True)


def _compare(records: Sequence[Mapping[str, Any]], back: Records) -> None:
    """Refuse to publish what would not come back as it is, such as a name with a line break."""
    kept = [_text({**record, "sha256": {}}, sort=True) for record in records]
    if sorted(kept) != sorted(_text(one, sort=True) for some in back.values() for one in some):
        raise ValueError("these records cannot be published: they have names or texts that no table can hold")


def _read(folder: Path, name: str) -> bytes:
    """A file that is what its checksum says."""
    try:
        content = (folder / name).read_bytes()
        sums = dict(line.split("  ")[::-1] for line in (folder / SUMS).read_text().splitlines())
    except (OSError, ValueError) as error:
        raise ValueError(f"{folder} cannot be read ({error}): get its files again, or publish it again") from None
    if hashlib.sha256(content).hexdigest() != sums.get(name):
        raise ValueError(
            f"{folder / name} is damaged, its SHA-256 is not the one in {SUMS}: get it again, or publish it again"
        )
    return content


def _read_lines(content: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in content.decode().split("\n") if line]


def _read_table(content: bytes) -> list[dict[str, Any]]:
    """The rows of a table as what they were written from."""
    names, *rows = csv.reader(io.StringIO(content.decode(), newline=""))
    places = [(whole, *whole.partition(".")[::2]) for whole in names]
    return [_row(zip(places, row, strict=True)) for row in rows]


def _row(cells: Iterable[tuple[tuple[str, str, str], str]]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for (whole, name, part), text in cells:
        if whole in TEXTS:
            row |= {} if name == "parent" and not text else {name: text}
        elif text:
            if part:
                row.setdefault(name, {})[part] = _value(text)
            else:
                row[name] = _value(text)
    return row


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _columns(table: Any) -> Any:
    """A list of objects with the same names as {"columns": {name: its values}}; anything else as it is."""
    if isinstance(table, list) and table and all(isinstance(row, dict) and [*row] == [*table[0]] for row in table):
        return {"columns": {name: [row[name] for row in table] for name in table[0]}}
    return table


def _rows(table: Any) -> Any:
    """What ``_columns`` was given."""
    if isinstance(table, dict) and [*table] == ["columns"]:
        return [dict(zip(table["columns"], row, strict=True)) for row in zip(*table["columns"].values(), strict=True)]
    return table


def _names(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """A column for each name, in the order of the first row that has it; for each name in a part, as "config.lr"."""
    names = dict.fromkeys(name for row in rows for name in _flat(row))
    first = [name for name in names if "." not in name]
    return [*first, *sorted((name for name in names if "." in name), key=lambda name: name.partition(".")[0])]


def _table(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> bytes:
    file = io.StringIO(newline="")
    table = csv.writer(file, lineterminator="\n")
    table.writerow(columns)
    table.writerows([row.get(name, "") for name in columns] for row in map(_flat, rows))
    return file.getvalue().encode()


def _flat(row: Mapping[str, Any]) -> dict[str, str]:
    """The cells of a row by column."""
    cells: dict[str, str] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            cells |= {f"{name}.{part}": _cell(f"{name}.{part}", one) for part, one in value.items()}
        else:
            cells[name] = "" if name in _EMPTY and value == _EMPTY[name] else _cell(name, value)
    return cells


def _cell(name: str, value: Any) -> str:
    if isinstance(value, str) and (name in TEXTS or (value and _value(value) is value)):
        return value
    return _text(value)


def _lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    return "".join(f"{_text(row)}\n" for row in rows).encode()


def _name(value: Mapping[str, Any], known: dict[str, Any]) -> str:
    """A short name for a line: the beginning of its SHA-256."""
    name = hashlib.sha256(_text(value).encode()).hexdigest()[:8]
    if known.setdefault(name, value) != value:
        raise ValueError(f"two lines have the name {name}: {value} and {known[name]}")
    return name


def _key(value: Mapping[str, Any]) -> str:
    return _text(list(value.values()))


def _text(value: Any, sort: bool = False) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=sort)
