"""docs/bench.md says what the records say."""

import json
from pathlib import Path

from benchmarks.cost import first, gradients, page, parts, read, table
from benchmarks.told import bench_page
from tests.pages import emptied

ROOT = Path(__file__).parents[2]


def test_the_page_is_up_to_date():
    """Else: python -m benchmarks.cost, and python -m benchmarks.told"""
    text, results = (ROOT / "docs" / "bench.md").read_text(), ROOT / "results"
    assert text.count("<!-- told ") == 7
    assert page(bench_page(emptied(text), results), results / "bench") == text


def test_a_row_from_several_records(tmp_path):
    """Eager records, and those of other options of the compiler, are left out, and so is what failed; a later record
    stands for what it measured."""
    plain = {"step": "plain", "ratio": 1.0, "median_ms": 20.0, "error": ""}
    first = [plain, {"step": "racecar 1/8", "ratio": 1.3, "memory_ratio": 1.125, "over_by_hand": 0.96, "error": ""}]
    second = [
        plain,
        {"step": "racecar 1/8", "ratio": 1.25, "over_by_hand": None, "error": ""},
        {"step": "racecar 1", "ratio": 2.5, "over_by_hand": 1.02, "error": ""},
        {"step": "srip", "error": "x"},
    ]
    other = [{**plain, "median_ms": 9.0}]
    for name, settings, steps in (
        ("a", {"compile": True}, first),
        ("b", {"compile": True}, second),
        ("c", {"compile": False}, other),
        ("d", {"compile": True, "combine": True}, other),
    ):
        record = {
            "settings": settings,
            "models": [{"model": "vit", "steps": steps}, {"model": "resnet50", "error": "x"}],
        }
        (tmp_path / f"h200-{name}.json").write_text(json.dumps(record))
    found = read(tmp_path)
    assert list(found) == ["vit"]
    row = table(found).splitlines()[-1]
    assert row == "| ViT-B/16 | 20.0 | 2.50 | 1.25 | – | – | – | – | – | 1.12, – | 1.02 of 2 |"


def test_each_reach_of_the_gradient(tmp_path):
    """A row for each, under the label that its steps have; what was not measured is no number."""
    plain = {"step": "plain", "ratio": 1.0, "median_ms": 10.0}
    steps = [
        plain,
        {"step": "racecar 1", "ratio": 1.75},
        {"step": "racecar both 1/8", "ratio": 1.5, "memory_ratio": 1.25},
    ]
    record = {"settings": {"compile": True}, "models": [{"model": "vit", "steps": steps}]}
    (tmp_path / "gradients-h200-a.json").write_text(json.dumps(record))
    assert gradients(read(tmp_path, "gradients-*")).splitlines()[2:] == [
        "| ViT-B/16 | both | – | 1.50 | – | – | 1.25 | – |",
        "| ViT-B/16 | reverse | 1.75 | – | – | – | – | – |",
        "| ViT-B/16 | weights | – | – | – | – | – | – |",
    ]


def test_of_what_a_cost_consists(tmp_path):
    """10 ms are 6 of products and 4 of others; a slice adds 1 and 0.5, in 30 kernels. Without a profile: no row."""
    plain = {"step": "plain", "ratio": 1.0, "median_ms": 10.0, "kernels": 50, "kernel_ms": 10.0, "product_ms": 6.0}
    slice_ = {"step": "racecar 1/8", "ratio": 1.16, "floor": 1.06, "kernels": 80, "kernel_ms": 11.5, "product_ms": 7.0}
    steps = [plain, slice_, {"step": "racecar 1/16", "ratio": 1.1, "floor": 1.03}]
    record = {"settings": {"compile": True}, "models": [{"model": "vgg19", "steps": steps}]}
    (tmp_path / "h200-a.json").write_text(json.dumps(record))
    assert parts(read(tmp_path)).splitlines()[2:] == ["| VGG19-BN | 1/8 | 1.16 | 1.06 | 1.10 | 30 | 0.5 |"]


def test_the_laboratory_beside_plain_trainings(tmp_path):
    """Medians of the seconds, and the record's own ratios."""
    record = {"cores": 2, "device": "CPU x86_64", "torch": "2.13.0", "ratio": {"plain": 4.5, "plain, 2 at once": 2.25}}
    record["seconds"] = {"plain": [91.0, 89.0, 80.0], "plain, 2 at once": [45.0], "ours": [20.0]}
    (tmp_path / "first-two-a.json").write_text(json.dumps(record))
    assert first(tmp_path).splitlines()[2:] == ["| 2 cores, x86_64, torch 2.13.0 | 89 | 45 | 20 | 4.50 | 2.25 |"]
