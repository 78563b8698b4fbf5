"""The safety map, in small: its jobs, its data and nets, what it measures, and its page from made-up records."""

import gc
import json
import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from racecar import Racecar
from racecar.cli.app import run as command
from racecar.lab.datasets import MNIST, DataError
from racecar.lab.experiments import experiment
from racecar.lab.experiments import safety as module
from racecar.lab.experiments.safety import Safety, silent
from racecar.lab.experiments.safety import config as safety_config
from racecar.lab.experiments.safety.design import CONTEXTS, LAMBDAS, LOSSES, Context, Loss, Setting, covering
from racecar.lab.experiments.safety.map_figure import all_figures, map_figure
from racecar.lab.experiments.safety.rule import judge
from racecar.lab.experiments.safety.told import rows_of, told
from racecar.lab.measures.dead import is_dead
from racecar.lab.report import write_report
from racecar.lab.running.engines import vmap
from racecar.lab.running.jobs import make_jobs
from racecar.lab.running.packed import pack, write_pack
from racecar.lab.running.results import Store
from racecar.lab.running.run import Run
from tests.lab.experiments.pictures import write_mnist
from tests.lab.report.records import record
from tests.lab.tiny import results, run

SAFETY = experiment("safety")
SMALL = {"images": 20, "epochs": 1, "batch": 10, "labels": (2, 3), "draws": 2, "tests": 20}
ONE = SAFETY.Config(design="one", **SMALL)


@pytest.fixture(scope="module", autouse=True)
def frozen():
    """All that was imported is looked through for garbage once, and not again whenever many records were made."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Two hundred pictures to train on and a hundred to test on; the folder that they are in."""
    folder = tmp_path_factory.mktemp("pictures")
    counts = {"train": 200, "test": 100}
    write_mnist(folder, counts, np.random.default_rng(0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Safety, "source", replace(MNIST, counts=counts))
        yield folder


@pytest.fixture(scope="module")
def whole():
    """The jobs of the map, for one seed."""
    return make_jobs(SAFETY, SAFETY.Config(), SAFETY.variants, [100], None)


# Jobs


def test_the_whole_map(whole):
    assert SAFETY.seeds == 5
    assert len(whole) == 54 + 39 * 7 * 9
    assert len({id for job in whole for id in job.ids.values()}) == len(whole)
    assert Counter(job.variant for job in whole) == {"Std": 54, "RR": 1134, "lRR": 1134, "RR1": 189}
    plain = [job.config for job in whole if job.variant == "Std"]
    assert [context_of(c) for c in plain] == list(CONTEXTS)
    assert {(c.gradient, c.scale, c.mode, c.layers, c.lam) for c in plain} == {("none", "none", "none", "all", 0.0)}
    parts = Counter(len(part) for part in vmap._parts(whole))
    assert parts == {7: 39 * 9, 6: 9}  # seven λ, or six starts and step sizes


def test_the_nets_of_every_setting(whole):
    nets = {}
    for job in whole:
        if job.variant != "Std":
            c = job.config
            assert job.coefficient == c.lam
            nets.setdefault((c.gradient, c.scale, c.mode, c.layers, c.lam), []).append(context_of(c))
    settings = [Setting(loss, place) for loss in LOSSES for place in LAMBDAS]
    assert nets == {(*one.loss, one.lam): list(covering(one)) for one in settings}
    some = Setting(Loss("weights", "sum", "full"), 0.3)
    assert some.lam == pytest.approx(3e-5)
    assert {key[:4] for key in nets if key[-1] == some.lam} == {
        (gradient, "sum", mode, "all") for gradient in ("both", "reverse", "weights") for mode in ("full", "layerwise")
    }


def context_of(config):
    return Context(config.depth, config.start, config.norm, config.lr)


def test_a_confirmation(whole):
    losses = ("reverse:relative:layerwise:0.1", "both:sum:full:1", "weights:anchored:full:body:0.03")
    config = SAFETY.Config(design="confirm", losses=losses)
    jobs = make_jobs(SAFETY, config, SAFETY.variants, range(100, 102), None)
    assert len({job.ids["A"] for job in jobs}) == len(jobs)
    assert {len(part) for part in vmap._parts(jobs)} == {12}  # two seeds of six starts and step sizes
    assert Counter(job.variant for job in jobs) == {"Std": 108, "lRR": 108, "RR": 216}
    assert {job.coefficient for job in jobs} == {None, 0.1, 1e-4, 0.03}
    assert {(job.coefficient, job.config.layers) for job in jobs} == {
        (None, "all"), (0.1, "all"), (1e-4, "all"), (0.03, "body"),
    }  # fmt: skip
    ids = {job.ids["A"] for job in whole}
    shared = [job.seed for job in jobs if job.ids["A"] in ids]
    assert shared == [100] * (54 + 3 * 9)  # a net has the same name in either design


def test_some_of_it():
    config = SAFETY.Config(losses=("both:mean:full",), lams=(0.1, 1.0), depths=(3,), norms=("none", "batch"))
    jobs = make_jobs(SAFETY, config, SAFETY.variants, [0], None)
    assert Counter(job.variant for job in jobs)["RR"] == 2 * 2  # a start for each norm
    assert {(job.config.depth, job.config.norm) for job in jobs} == {(3, "none"), (3, "batch")}


@pytest.mark.parametrize("text, places", [("reverse:relative:layerwise:body", LAMBDAS),
                                          ("reverse:relative:layerwise:body:0.03", (0.03,))])  # fmt: skip
def test_some_of_it_without_classifier(text, places):
    found = safety_config.designed(SAFETY.Config(losses=(text,)))
    mine = [one for one in found if one.mode != "none"]
    assert {(one.gradient, one.scale, one.mode, one.layers) for one in mine} == {tuple(text.split(":")[:4])}
    assert [one.lam for one in mine] == [place for place in places for _ in range(9)]
    assert {context_of(one) for one in found if one.mode == "none"} == {context_of(one) for one in mine}


@pytest.mark.parametrize(
    "config, message",
    [
        ({"depth": 6}, "depth with design=cover: the design gives each net its own; add design=one"),
        ({"design": "one", "lams": (0.1,)}, "lams with design=one: that is for a design"),
        ({"design": "confirm"}, "design=confirm needs losses with their λ"),
        ({"design": "confirm", "losses": ("both:mean:full",)}, "design=confirm needs losses with their λ"),
        ({"design": "confirm", "losses": ("both:relative:full:body",)}, "design=confirm needs losses with their λ"),
        ({"losses": ("both:mean",)}, "is none of the map's"),
        ({"losses": ("both:anchored:full:body",)}, "is none of the map's"),
        ({"losses": ("both:relative:full:body:3",)}, "must be one of 0.001, 0.003"),
        ({"layers": "body"}, "layers with design=cover: the design gives each net its own; add design=one"),
    ],
)
def test_designs_that_cannot_be(config, message):
    with pytest.raises(ValueError, match=message):
        safety_config.designed(SAFETY.Config(**config))


@pytest.mark.parametrize(
    "config",
    [
        {"design": "x"}, {"mode": "none"}, {"depth": 9}, {"norm": "layer"}, {"lams": (0.2,)}, {"lams": ()},
        {"labels": ()}, {"lam": -1.0}, {"images": 0}, {"start": "zero"}, {"lrs": (1.0,)},
        {"lams": (10.0,)}, {"layers": "none"}, {"layers": "classifier"},
    ],
)  # fmt: skip
def test_settings_that_cannot_be(config):
    with pytest.raises(ValueError, match=next(iter(config))):
        SAFETY.Config(**config)


# Data and nets


def test_data(pictures):
    tasks = SAFETY.data(ONE, 0, pictures)
    assert tasks["A"].train.x.shape == (20, 1, 14, 14)
    assert tasks["A"].train.y.unique().tolist() == tasks["B"].test.y.unique().tolist() == list(range(5))
    assert SAFETY.data(ONE, 0, pictures)["A"].train.x is tasks["A"].train.x  # read once
    assert not torch.equal(SAFETY.data(ONE, 1, pictures)["A"].train.x, tasks["A"].train.x)
    x, y = Safety.source.load(pictures, "test")
    wanted = nn.functional.avg_pool2d(x[y >= 5][:20].float() / 255, 2)
    torch.testing.assert_close(tasks["B"].test.x, wanted)


def test_data_that_are_missing(tmp_path):
    with pytest.raises(DataError, match="mnist is not in"):
        SAFETY.data(ONE, 0, tmp_path)


@pytest.mark.parametrize("context", [one for one in CONTEXTS if one.lr == 1e-3 and one.depth > 3], ids=str)
def test_nets(context):
    torch.manual_seed(0)
    net = SAFETY.network(replace(ONE, **context._asdict()))
    convs = [one for one in net.modules() if isinstance(one, nn.Conv2d)]
    assert len(convs) == context.depth
    assert [one.out_channels for one in convs] == [w for w in (16, 32, 32) for _ in range(context.depth // 3)]
    assert net(torch.rand(2, 1, 14, 14)).shape == (2, 5)
    kind = {"none": type(None), "batch": nn.BatchNorm2d, "group": nn.GroupNorm}[context.norm]
    assert sum(isinstance(one, kind) for one in net.modules()) == (0 if context.norm == "none" else context.depth)
    last = convs[-1].weight.detach().flatten(1)
    if context.start == "orthogonal":
        torch.testing.assert_close(last @ last.t(), 2 * torch.eye(32), rtol=1e-4, atol=1e-4)
    else:
        std = (2 / 288) ** 0.5 if context.start == "he" else (1 / 3 / 288) ** 0.5
        assert float(last.std()) == pytest.approx(std, rel=0.1)
    assert (float(convs[0].bias.detach().abs().max()) == 0) is (context.start != "torch")


def test_every_layer_is_constrained():
    net, given = SAFETY.network(ONE), SAFETY.reverse(ONE)
    rr = Racecar(net, torch.rand(4, 1, 14, 14), mode="full", **given)
    rr(torch.rand(4, 1, 14, 14))
    assert {name.split(".")[0] for name in rr.terms} == {"features", "classifier"}
    assert len(rr.terms) == 4
    assert (rr.gradient, rr.reduction, rr.fraction) == ("both", "mean", 1.0)


@pytest.mark.parametrize("mode", ["full", "layerwise"])
@pytest.mark.parametrize("depth, norm", [(3, "none"), (6, "batch"), (12, "group")])
def test_the_classifier_is_left_out(depth, norm, mode):
    """Exactly it, and nothing else; the reverse pass does not even go through it. The mean is over the others."""
    net, x = SAFETY.network(replace(ONE, depth=depth, norm=norm)), torch.rand(4, 1, 14, 14)
    wanted = [name for name, one in net.named_modules() if isinstance(one, nn.Conv2d)]
    found = {}
    for layers in ("all", "body"):
        rr = Racecar(net, x, mode=mode, **SAFETY.reverse(replace(ONE, depth=depth, norm=norm, layers=layers)))
        _, loss = rr(x)
        assert len(rr.plan) == depth + 1
        assert loss.item() == pytest.approx(sum(one.item() for one in rr.terms.values()) / len(rr.terms))
        found[layers] = {one.name: one for one in rr.plan}
        assert list(rr.terms) == [name for name, one in found[layers].items() if one.constrained]
    assert all(one.constrained for one in found["all"].values())
    (left_out,) = (one for one in found["body"].values() if not one.constrained)
    assert net.get_submodule(left_out.name) is net.classifier[0]
    assert not left_out.passed
    assert [name for name, one in found["body"].items() if one.constrained] == wanted


# Trained


def one_of(loss, norm, **more):
    return replace(ONE, **loss._asdict(), norm=norm, **more)


CHECKED = (
    Loss("both", "ratio", "layerwise"),
    Loss("reverse", "anchored", "full"),
    Loss("weights", "mean", "layerwise"),
)


@pytest.mark.parametrize("loss", CHECKED, ids=str)
def test_the_engines_agree(loss, pictures, tmp_path):
    """Starts, λ, step sizes and seeds as one batch of nets, and each by itself."""
    norm = {"both": "batch", "reverse": "group", "weights": "none"}[loss.gradient]
    jobs = []
    for start, lam, lr, seed in (("he", 0.1, 1e-3, 0), ("orthogonal", 1.0, 1e-3, 1), ("torch", 1.0, 3e-3, 0)):
        config = one_of(loss, norm, start=start, lam=lam, lr=lr)
        jobs += make_jobs(SAFETY, config, SAFETY.variants, [seed], pictures)
    assert list(map(len, vmap._parts(jobs))) == [3]
    for engine in ("here", "vmap"):
        assert run(jobs, tmp_path / engine, engine) == []
        assert not (tmp_path / engine / "weights").exists()
    here, other = ({run.id: run for run in Store(tmp_path / engine).runs()} for engine in ("here", "vmap"))
    assert here.keys() == other.keys()
    for id, one in here.items():
        for name, curve in one.record["curves"].items():
            assert other[id].record["curves"][name] == pytest.approx(curve, rel=1e-3), name
        assert set(one.metrics) == {"source_accuracy", "dead", "silent", "probe_2", "probe_3"}
        assert other[id].metrics["probe_3"] == pytest.approx(one.metrics["probe_3"], abs=0.101)
        assert len(json.dumps(one.record, separators=(",", ":"))) < 1900


def test_what_is_measured(pictures, tmp_path):
    """By hand, on a net whose first block is dead and one that says always the same."""
    net = SAFETY.network(ONE).eval()
    x = torch.rand(8, 1, 14, 14)
    with torch.no_grad():
        net.features[0].weight.zero_()
        net.features[0].bias.copy_(-torch.ones(16))
    with torch.no_grad():
        second = net.features[:5](x)
        third = net.features[:8](x)
    wanted = 16 * 14 * 14 + int((second == 0).all(0).sum()) + int((third == 0).all(0).sum())
    assert silent(net, x) == wanted
    assert is_dead(net, x)
    trained = module.Trained(SAFETY.stages(ONE)[0], net, SAFETY.data(ONE, 0, pictures)["A"], 0, "lRR",
                             torch.device("cpu"), pictures)  # fmt: skip
    found = SAFETY.measure(ONE, trained).metrics
    assert found["dead"] == 1.0
    assert found["probe_2"] == pytest.approx(0.2)  # constant features: always the same class


def test_quick_through_the_command_line(pictures, tmp_path, capsys):
    arguments = ["run", "safety", "--quick", "--seeds", "1", "--data", str(pictures), "--out", str(tmp_path / "out")]
    small = ["images=40", "epochs=1", "labels=10", "tests=20", "lams=0.1"]
    assert command([*arguments, "--workers", "1", *(part for one in small for part in ("--set", one))]) == 0
    first, *said = capsys.readouterr().out.splitlines()
    assert first == "a quick run: no evidence, and nothing of it is judged"
    assert "plain twins" in said[0]
    assert not any("hosen" in line for line in said)
    assert {one["variant"] for one in plain_results(tmp_path / "out")} == {"Std", "lRR"}
    assert command(["report", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / "report.html").stat().st_size < 300_000


def plain_results(folder):
    return [run.record for run in Store(folder).runs()]


def test_missing_data_are_missed_once(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    arguments = ["run", "safety", "--quick", "--data", str(tmp_path / "empty"), "--out", str(tmp_path / "out")]
    assert command(arguments) == 2
    assert "racecar: mnist is not in" in capsys.readouterr().err


# The page


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


def test_the_figure(records, whole_page):
    _, figures = whole_page
    ((title, figure),) = figures.items()
    assert "the frame: what the rule chooses" in title
    left, right, *bars = figure.axes
    assert len(bars) == 2
    assert len(left.get_yticklabels()) == 39
    assert [one.get_text() for one in left.get_xticklabels()] == ["0.001", "0.003", "0.01", "0.03", "0.1", "0.3", "1"]
    assert len(left.texts) == len(right.texts) == 39 * 7
    chosen = judge(rows_of(map(Run, records)).rows).chosen
    (frame,) = left.patches
    assert frame.get_xy() == (LAMBDAS.index(chosen.place) - 0.5, LOSSES.index(chosen.loss) - 0.5)
    assert right.images[0].get_array()[0, 6] == pytest.approx(100 / 3)
    assert all_figures([]) == {}


def test_a_figure_of_little():
    runs = [Run(one) for one in map_records(range(1), made_up=LOSSES[:1]) if one["coefficient"] in (None, 0.1)]
    cells = judge(rows_of(runs).rows).cells
    figure = map_figure(cells)
    assert len(figure.axes[0].texts) == 1
    assert not figure.axes[0].patches


def test_packed_map(tmp_path):
    """Records of the map can be packed, and jobs find them."""
    job, *_ = make_jobs(SAFETY, ONE, ("lRR",), [0], None)
    written = {**record("lRR", 0, {"dead": 0.0}, experiment="safety", coefficient=0.1, config=ONE.to_dict())}
    Store(tmp_path).write({**written, "id": job.ids["A"]}, {}, {})
    pack(tmp_path)
    assert job.unfinished(Store(tmp_path)) == []
    assert results(tmp_path / "none") == {}
