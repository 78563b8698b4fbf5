"""docs/when.md says what the records say."""

from pathlib import Path

from benchmarks.when import LABELS, MAP, figure, gain, page, read

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"


def test_the_page_is_up_to_date():
    """Else: python -m benchmarks.when"""
    text = (ROOT / "docs" / "when.md").read_text()
    assert text.count("<!-- end -->") == 7
    assert all(f"| {label} |" in text for label in MAP)
    assert page(text, RESULTS) == text


def test_what_is_not_between_marks_stays():
    text = "before\n<!-- table probe batch digits -->\nold\n<!-- end -->\nafter\n"
    filled = page(text, RESULTS)
    assert filled.startswith("before\n<!-- table probe batch digits -->\n")
    assert filled.endswith("<!-- end -->\nafter\n")
    assert "old" not in filled


def test_the_figure_shows_the_gain():
    found = read(RESULTS / "few-labels", "none")
    ours = [100 * (found["RR, an eighth of the batch"][i]["probe_2"] - found["Std"][i]["probe_2"]) for i in range(10)]
    assert abs(gain(found, "probe_2").mean - sum(ours) / 10) < 1e-9
    drawn = figure(RESULTS / "few-labels")
    assert [axis.get_title() for axis in drawn.axes] == ["linear probe", "fine-tuned"]
    assert len(drawn.axes[0].containers) == 2
    assert len(drawn.axes[0].containers[0].lines[0].get_xdata()) == len(LABELS)
