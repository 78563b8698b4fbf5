"""Published runs: tables that a spreadsheet, pandas and ``git diff`` can read.

A folder of published runs has

* ``runs.csv``: a line for each run: its id and seed, metrics, cost, and the names of its lines in the next two files;
* ``settings.csv``: experiment, variant, weight, configuration …;
* ``made.jsonl``: how runs were made: command, commit, versions, device;
* ``details.jsonl``: curves and tables, which do not fit into cells, a line for each run that has any; a table whose
  rows have the same names is written by column;
* ``arrays.safetensors``: the arrays that figures show; a tensor is named "id/name";
* ``SHA256SUMS``: checksums of these files, as ``sha256sum --check`` reads them.

A cell is JSON, except that a text has no quotes; an empty cell means that there is no such value. For the runs under
``results/``, which must stay below 20 MB in all, these tables are 10 MB. JSON lines, each with everything about a run,
would be 47 MB, and 20 MB with the settings in a file of their own, because each line repeats the names of its fields.
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
"""Columns that are read as text, although an id, for example, may look like a number."""
_RUN = ("seed", "parent", "status", "note", "dead", "metrics", "cost")
"""Fields of a record that go into ``runs.csv``; a mapping such as metrics has a column for each of its names."""
_SETTING = ("experiment", "variant", "weight", "stage", "task", "regularised", "purpose", "other_data")
_EMPTY: dict[str, Any] = {"weight": None, "parent": None, "dead": None, "other_data": []}
"""Field of a record → the value of it that is written as an empty cell."""
_NO_PARTS: dict[str, Any] = {name: {} for name in ("config", "tuned", "metrics", "cost", "curves", "tables", "sha256")}
"""Field that is a mapping → the empty mapping, which is read where a run has no columns for it."""

Records = Mapping[str, list[dict[str, Any]]]
"""Id of a run → its records, one for each setting that the run is the result of."""


def read_published(folder: Path) -> Records:
    """The records of a published folder; empty if the folder is not published.

    Raises:
        ValueError: a file does not match its checksum.
    """
    if not (folder / RUNS).exists():
        return {}
    files = {name: _read(folder, name) for name in (RUNS, SETTINGS, MADE, DETAILS)}
    return _records(files, str(folder / RUNS))


def _records(files: Mapping[str, bytes], where: str) -> Records:
    """The records in the contents of the files, which are given by file name; errors name ``where``."""
    settings = {line.pop("setting"): line for line in _read_table(files[SETTINGS])}
    makers = {line.pop("made"): line for line in _read_lines(files[MADE])}
    all_details = {line.pop("id"): line for line in _read_lines(files[DETAILS])}
    records: dict[str, list[dict[str, Any]]] = {}
    for run in _read_table(files[RUNS]):
        maker = {**makers[run.pop("made")], "finished": run.pop("finished")}
        setting, details = settings[run.pop("setting")], all_details.get(run["id"], {})
        tables = {name: _rows(table) for name, table in details.get("tables", {}).items()}
        record = {"format": FORMAT, **_EMPTY, **_NO_PARTS, **setting, **run, **details, "tables": tables, "made": maker}
        check_record(record, f"run {record['id']} of {where}")
        records.setdefault(record["id"], []).append(record)
    return records


def read_arrays(folder: Path) -> dict[str, dict[str, Tensor]]:
    """The arrays of a published folder: run id → name → tensor."""
    arrays: dict[str, dict[str, Tensor]] = {}
    if (folder / ARRAYS).exists():
        for path, tensor in need("safetensors.torch", "lab").load(_read(folder, ARRAYS)).items():
            id, _, name = path.partition("/")
            arrays.setdefault(id, {})[name] = tensor
    return arrays


def write_published(
    folder: Path, records: Iterable[Mapping[str, Any]], arrays: Mapping[str, Mapping[str, Tensor]]
) -> None:
    """Write the files of a published folder, with these records and arrays; files that are there are replaced."""
    records = sorted(records, key=lambda record: (record["made"].get("finished", ""), record["id"]))
    settings: dict[str, Any] = {}
    makers: dict[str, Any] = {}
    all_details: dict[str, Any] = {}
    runs: list[dict[str, Any]] = []
    for record in records:
        setting = {name: record[name] for name in (*_SETTING, "config", "tuned")}
        maker = {name: value for name, value in record["made"].items() if name != "finished"}
        details = {name: record[name] for name in ("curves", "tables") if record[name]}
        names = {"setting": _name(setting, settings), "made": _name(maker, makers)}
        if details:
            tables = {name: _columns(table) for name, table in record["tables"].items()}
            all_details[record["id"]] = {"id": record["id"], **details} | ({"tables": tables} if tables else {})
        run = {name: record[name] for name in _RUN}
        runs.append({"id": record["id"], **names, **run, "finished": record["made"].get("finished", "")})
    columns = _names(runs), _names({"setting": name, **setting} for name, setting in settings.items())
    order = {name: i for i, name in enumerate(sorted(settings, key=lambda name: _key(settings[name])))}
    runs.sort(key=lambda run: (order[run["setting"]], run["seed"], run["id"]))
    files = {
        RUNS: _table(columns[0], runs),
        SETTINGS: _table(columns[1], [{"setting": name, **settings[name]} for name in order]),
        MADE: _lines({"made": name, **makers[name]} for name in sorted(makers, key=lambda name: _key(makers[name]))),
        DETAILS: _lines(all_details[id] for id in dict.fromkeys(run["id"] for run in runs) if id in all_details),
    }
    _compare(records, _records(files, str(folder / RUNS)))
    all_tensors = {f"{id}/{name}": tensor for id, tensors in arrays.items() for name, tensor in tensors.items()}
    if all_tensors:
        files[ARRAYS] = need("safetensors.torch", "lab").save(all_tensors)
    files[SUMS] = "".join(f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files)).encode()
    for name, content in files.items():  # the checksums last, without which the other files are not read
        with write_atomically(folder / name) as file:
            file.write(content)
    if not all_tensors:
        (folder / ARRAYS).unlink(missing_ok=True)


def _compare(records: Sequence[Mapping[str, Any]], read_back: Records) -> None:
    """Raise a ValueError if records are not the same when they are read back, such as those with a line break in a
    name."""
    before = [_text({**record, "sha256": {}}, sort=True) for record in records]
    after = [_text(record, sort=True) for same_id in read_back.values() for record in same_id]
    if sorted(before) != sorted(after):
        raise ValueError("these records cannot be published: they have names or texts that no table can hold")


def _read(folder: Path, name: str) -> bytes:
    """The content of a file of a published folder; a ValueError if it does not match its checksum."""
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
    """The rows of a CSV file, column → value, with the values that were written."""
    names, *rows = csv.reader(io.StringIO(content.decode(), newline=""))
    columns = [(column, *column.partition(".")[::2]) for column in names]
    return [_row(zip(columns, row, strict=True)) for row in rows]


def _row(cells: Iterable[tuple[tuple[str, str, str], str]]) -> dict[str, Any]:
    """A row from its cells, each ((column, its part before the dot, its part after the dot), text)."""
    row: dict[str, Any] = {}
    for (column, name, part), text in cells:
        if column in TEXTS:
            row |= {} if name == "parent" and not text else {name: text}
        elif text:
            if part:
                row.setdefault(name, {})[part] = _value(text)
            else:
                row[name] = _value(text)
    return row


def _value(text: str) -> Any:
    """The value that the text of a cell stands for: parsed as JSON, or else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _columns(table: Any) -> Any:
    """A table (list of dicts with the same keys) in a form that says each key once: {"columns": {key: its values in all
    rows}}. Anything else is returned unchanged."""
    if isinstance(table, list) and table and all(isinstance(row, dict) and [*row] == [*table[0]] for row in table):
        return {"columns": {name: [row[name] for row in table] for name in table[0]}}
    return table


def _rows(table: Any) -> Any:
    """A table as a list of dicts, from the form {"columns": {key: its values in all rows}} that files have it in.
    Anything else is returned unchanged."""
    if isinstance(table, dict) and [*table] == ["columns"]:
        return [dict(zip(table["columns"], row, strict=True)) for row in zip(*table["columns"].values(), strict=True)]
    return table


def _names(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """The names of a CSV file's columns: plain ones in the order in which they first occur, then dotted ones such as
    "config.lr", sorted by their first part."""
    names = dict.fromkeys(name for row in rows for name in _flat(row))
    plain = [name for name in names if "." not in name]
    return [*plain, *sorted((name for name in names if "." in name), key=lambda name: name.partition(".")[0])]


def _table(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> bytes:
    """The content of a CSV file with these columns and rows."""
    file = io.StringIO(newline="")
    table = csv.writer(file, lineterminator="\n")
    table.writerow(columns)
    table.writerows([row.get(name, "") for name in columns] for row in map(_flat, rows))
    return file.getvalue().encode()


def _flat(row: Mapping[str, Any]) -> dict[str, str]:
    """The cells of a row, column → text; a mapping has a cell for each of its names, such as "config.lr"."""
    cells: dict[str, str] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            cells |= {f"{name}.{part}": _cell(f"{name}.{part}", inner) for part, inner in value.items()}
        else:
            cells[name] = "" if name in _EMPTY and value == _EMPTY[name] else _cell(name, value)
    return cells


def _cell(name: str, value: Any) -> str:
    """The text of a value in a cell: a string as it is if the column ``name`` holds strings, or if it cannot be taken
    for JSON; anything else as JSON."""
    if isinstance(value, str) and (name in TEXTS or (value and _value(value) is value)):
        return value
    return _text(value)


def _lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """The content of a JSON lines file with these rows."""
    return "".join(f"{_text(row)}\n" for row in rows).encode()


def _name(value: Mapping[str, Any], known: dict[str, Any]) -> str:
    """A short name for a line of a file, the beginning of its SHA-256; the line is added to ``known``, name → line."""
    name = hashlib.sha256(_text(value).encode()).hexdigest()[:8]
    if known.setdefault(name, value) != value:
        raise ValueError(f"two lines have the name {name}: {value} and {known[name]}")
    return name


def _key(value: Mapping[str, Any]) -> str:
    """The text by which lines of a file are sorted: their values as JSON."""
    return _text(list(value.values()))


def _text(value: Any, sort: bool = False) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=sort)
