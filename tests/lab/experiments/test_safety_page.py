"""The page of the safety map and its figure, from made-up records."""

import random

import pytest

from racecar_lab.experiments import experiment
from racecar_lab.experiments.safety import Safety
from racecar_lab.experiments.safety import config as safety_config
from racecar_lab.experiments.safety.design import CONTEXTS, LAMBDAS, LOSSES, Loss, Setting, covering
from racecar_lab.experiments.safety.map_figure import MAPS, all_figures, map_figure
from racecar_lab.experiments.safety.rule import judge
from racecar_lab.experiments.safety.told import rows_of, told
from racecar_lab.report import write_report
from racecar_lab.running.packed import write_pack
from racecar_lab.running.run import Run
from tests.figures import LEAST, smallest
from tests.lab.report.records import record

SAFETY = experiment("safety")
PLANTED = Setting(Loss("reverse", "anchored", "layerwise"), 0.03)


def map_records(seeds=range(5), best=PLANTED, made_up=LOSSES):
    """A made-up map: λ = 1 kills nets without norm, one loss kills all from λ = 0.1 on, one setting is best."""
    rng, found = random.Random(0), []
    usual = SAFETY.Config(design="one").to_dict()
    noise = {seed: rng.gauss(0, 0.02) for seed in seeds}

    def one(context, seed, setting=None):
        killed = setting is not None and (
            (setting.place == 1 and context.norm == "none")
            or (setting.loss == Loss("both", "relative", "layerwise") and setting.place >= 0.1)
        )
        probe = 0.7 + noise[seed] + rng.gauss(0, 0.01) + (0.05 if setting == best else 0)
        metrics = {"source_accuracy": 0.21 if killed else 0.97, "dead": float(killed), "silent": 3.0}
        config = {**usual, **context._asdict(), **safety_config.PLAIN}
        if setting is not None:
            config |= {**setting.loss._asdict(), "lam": setting.lam}
        lost = killed and context.depth == 3
        return record(
            "Std" if setting is None else {"full": "RR", "layerwise": "lRR", "input": "RR1"}[setting.loss.mode], seed,
            {} if lost else metrics | {"probe_10": 0.2 if killed else probe, "probe_50": 0.8},
            experiment="safety", coefficient=None if setting is None else setting.lam, config=config,
            status="diverged" if lost else "finished", made={"finished": "2026-11-17T07:00:00Z"},
        )  # fmt: skip

    found += [one(context, seed) for context in CONTEXTS for seed in seeds]
    for setting in (Setting(loss, place) for loss in made_up for place in LAMBDAS):
        found += [one(context, seed, setting) for context in covering(setting) for seed in seeds]
    return found


@pytest.fixture(scope="module")
def records():
    return map_records(range(1))


def page(records, folder):
    """Of records in one file."""
    write_pack(folder, {one["id"]: one for one in records})
    report = write_report(folder, {"safety": SAFETY})
    assert not report.problems
    return report


@pytest.fixture(scope="module")
def whole_page(records, tmp_path_factory):
    """The page of the whole map, and the figures that were drawn for it."""
    drawn = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Safety, "figures", lambda self, runs: drawn.append(all_figures(runs)) or drawn[-1])
        return page(records, tmp_path_factory.mktemp("page")), *drawn


@pytest.mark.soak
def test_the_page_of_a_whole_map(records, whole_page):
    assert len(records) == 54 + 39 * 7 * 9
    report, _ = whole_page
    text = report.markdown.read_text()
    assert report.html.stat().st_size < 300_000
    assert len(text.encode()) < 11_600  # 155 for every loss
    cell = judge(rows_of(map(Run, records)).rows).cells[PLANTED]
    assert cell.gain == pytest.approx(0.05, abs=2 * cell.error)
    gain = f"the probe gains +{100 * cell.gain:.1f} ± {100 * cell.error:.1f} points"
    assert f"Chosen: reverse · anchored · layerwise, λ = 0.03; {gain}" in text
    asked = "--set design=confirm --set losses=reverse:anchored:layerwise:0.03 --first-seed 100 --seeds 10"
    assert f"not confirmed yet: racecar run safety {asked}" in text
    assert "both · relative · layerwise | 0.01 |" in text  # safe up to there
    assert "9 of 9 nets killed" in text
    assert len(list((report.html.parent / "figures").iterdir())) == 1


def test_the_page_does_not_grow_with_the_seeds(tmp_path, monkeypatch):
    """Of which the map has five."""
    monkeypatch.setattr(Safety, "figures", lambda self, runs: {})  # it has one number for all seeds
    pages = []
    for count in (1, 5):
        (tmp_path / str(count)).mkdir()
        pages.append(page(map_records(range(count), made_up=LOSSES[1:2]), tmp_path / str(count)))
    assert "45 of 45 nets killed" in pages[1].markdown.read_text()
    for one, other in ((pages[0].html, pages[1].html), (pages[0].markdown, pages[1].markdown)):
        assert other.stat().st_size == pytest.approx(one.stat().st_size, rel=0.01)


def test_a_setting_that_is_none_is_named():
    bad = map_records(range(1), made_up=LOSSES[:1])[-1]
    del bad["config"]["depth"]
    with pytest.raises(ValueError, match=f"record {bad['id']} has a bad setting \\(KeyError: 'depth'\\)"):
        SAFETY.told([Run(bad)])


def test_words():
    runs = [Run(one) for one in map_records(range(2), made_up=LOSSES[:3])]
    notes, (best, losses) = told(runs)
    assert notes[0].startswith("Chosen")
    assert "378 nets with a reverse loss beside 108 plain twins, 0 of which are dead" in notes[1]
    assert "plain training works in 54 of 54 contexts" in notes[1]
    assert len(losses.rows) == 3
    assert len(best.rows) == 8
    other = [Run({**run.record, "config": {**run.record["config"], "images": 9}}) for run in runs[:5]]
    assert "5 nets trained or measured in another way than most left out." in told([*runs, *other])[0]
    assert "54 nets" not in notes[1]
    assert told([])[0][0] == "No setting is both safe and harmless: nothing is chosen."
    alone = [run for run in runs if run.variant != "Std"]
    assert any("378 nets without a plain twin left out" in one for one in told(alone)[0])


def test_rows(records):
    for loss in (LOSSES[0], LOSSES[-1]):  # of all layers, and without the classifier
        (row,) = rows_of([Run(map_records(range(1), made_up=[loss])[-1])]).rows
        assert row.setting == Setting(loss, 1.0)
        assert row.context in CONTEXTS
    lost = [one for one in rows_of(map(Run, records)).rows if one.source is None]
    assert lost
    assert all(one.dead for one in lost)


@pytest.mark.soak
def test_the_figures(records, whole_page):
    _, figures = whole_page
    verdict = judge(rows_of(map(Run, records)).rows)
    chosen = verdict.chosen
    assert ["gains" in title for title in figures] == [True, False]
    for title, figure in figures.items():
        assert title.endswith("; the frame: what the rule chooses")
        assert smallest(figure) >= LEAST
        assert [axis.get_title("left") for axis in figure.axes] == [
            f"gradient {one}" for one in ("both", "reverse", "weights")
        ]
        assert sum(len(axis.get_yticklabels()) for axis in figure.axes) == 39
        assert sum(len(axis.texts) for axis in figure.axes) == 39 * 7
        for axis in figure.axes:
            assert [one.get_text() for one in axis.get_xticklabels()] == [".001", ".003", ".01", ".03", ".1", ".3", "1"]
        (frame,) = [patch for axis in figure.axes for patch in axis.patches]
        losses = [loss for loss in LOSSES if loss.gradient == chosen.loss.gradient]
        assert frame.get_xy() == (LAMBDAS.index(chosen.place) - 0.5, losses.index(chosen.loss) - 0.5)
    gained, killed = figures.values()
    assert f"{100 * verdict.cells[chosen].gain:.1f} for the chosen {chosen}" in gained.get_label()
    assert killed.axes[0].images[0].get_array()[0, 6] == pytest.approx(100 / 3)
    assert all_figures([]) == {}


def test_a_figure_of_little():
    runs = [Run(one) for one in map_records(range(1), made_up=LOSSES[:1]) if one["coefficient"] in (None, 0.1)]
    cells = judge(rows_of(runs).rows).cells
    for what in MAPS:
        (axis,) = map_figure(cells, what).axes
        assert len(axis.texts) == 1
        assert not axis.patches
