"""Records of benchmarks, packed: nothing is lost, and the page shows what they say."""

import json
from pathlib import Path

from benchmarks import records
from benchmarks.bench.tables import markdown

BENCH = Path(__file__).parents[2] / "results" / "bench"


def test_the_page_is_up_to_date():
    """Else: python -m benchmarks.records"""
    assert (BENCH / "records.md").read_text() == records.page(records.read(BENCH))


def test_pack_and_read(tmp_path):
    """What was read before is read after, also what another time brings; a new file stands for an old line."""
    given = records.read(BENCH, "*-cpu") | {"b": {"x": 0.1 + 0.2}, "b-more": {"x": None}}
    for name, one in given.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(one))
    assert records.read(tmp_path) == given
    records.pack(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["benchmarks.jsonl", "records.md"]
    assert records.read(tmp_path) == given
    assert list(records.read(tmp_path, "b*")) == ["b-more", "b"]
    (tmp_path / "b.json").write_text('{"x": 2}')
    assert records.read(tmp_path)["b"] == {"x": 2}
    records.pack(tmp_path)
    assert records.read(tmp_path) == given | {"b": {"x": 2}}


def test_the_page_shows_what_show_prints():
    found = records.read(BENCH, "step-cpu")
    assert (
        records.page(found | {"b": {"x": 1}})
        == f"# Records of racecar bench\n\n## step-cpu\n\n{markdown(found['step-cpu'])}\n"
    )
