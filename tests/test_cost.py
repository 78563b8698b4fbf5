"""docs/bench.md says what the records say."""

import json
from pathlib import Path

from benchmarks.cost import page, read, table

ROOT = Path(__file__).parent.parent


def test_the_page_is_up_to_date():
    """Else: python -m benchmarks.cost"""
    text = (ROOT / "docs" / "bench.md").read_text()
    assert text.count("<!-- cost -->") == 1
    assert page(text, ROOT / "results" / "bench") == text


def test_a_row_from_several_records(tmp_path):
    """Eager records are left out, and so is what failed; a later record stands for what it measured."""
    plain = {"step": "plain", "ratio": 1.0, "median_ms": 20.0, "error": ""}
    first = [plain, {"step": "racecar 1/8", "ratio": 1.3, "memory_ratio": 1.125, "over_by_hand": 0.96, "error": ""}]
    second = [
        plain,
        {"step": "racecar 1/8", "ratio": 1.25, "over_by_hand": None, "error": ""},
        {"step": "racecar 1", "ratio": 2.5, "over_by_hand": 1.02, "error": ""},
        {"step": "srip", "error": "x"},
    ]
    for name, compiled, steps in (("a", True, first), ("b", True, second), ("c", False, [{**plain, "median_ms": 9.0}])):
        record = {
            "settings": {"compile": compiled},
            "models": [{"model": "vit", "steps": steps}, {"model": "resnet50", "error": "x"}],
        }
        (tmp_path / f"h200-{name}.json").write_text(json.dumps(record))
    found = read(tmp_path)
    assert list(found) == ["vit"]
    row = table(found).splitlines()[-1]
    assert row == "| ViT-B/16 | 20.0 | 2.50 | 1.25 | – | – | – | – | – | 1.12, – | 1.02 of 2 |"
