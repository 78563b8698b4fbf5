"""Which loss a run had, and λ as it is printed: of the mean over the constrained layers, whatever the record holds."""

from dataclasses import replace

import pytest
import torch

from racecar import Racecar
from racecar.reverse.settings import Settings
from racecar.reverse.terms import GRADIENTS, REDUCTIONS, SCALES
from racecar_lab.cli.summary import summary
from racecar_lab.config import younger
from racecar_lab.experiments import EXPERIMENTS, experiment
from racecar_lab.report.restate import restated, times
from racecar_lab.report.section import section
from racecar_lab.running.jobs import make_jobs
from racecar_lab.running.results import Store
from racecar_lab.running.run import Run
from racecar_lab.training import variants
from racecar_lab.training.loss_config import FIRST_LOSS, KNOWN, LOSS, LossConfig
from tests.lab.report.records import record
from tests.lab.tiny import run

INFORMATION = experiment("information")
SHAPES = {"information": (12,), "slices": (12,), **dict.fromkeys(("slices-cifar", "long-training"), (3, 32, 32))}
SHAPES |= {"sequences": (28, 28), "texture-shape": (3, 64, 64), "smoke": (1, 8, 8), "smoke-autoencoder": (1, 8, 8)}
CHOSEN = [name for name, one in EXPERIMENTS.items() if issubclass(one.Config, LossConfig)]
CONFIGS = [
    *((name, {}) for name in EXPERIMENTS if name not in ("peaks", "safety", "streams")),
    *(("peaks", {"nets": (net,)}) for net in ("linear", "norm", "two")),
    *(("few-labels", {"depth": 6, "layers": layers}) for layers in ("all", "early", "late")),
    ("few-labels", {"norm": "group"}),
    ("mnist", {"norm": True}),
    ("sequences", {"layers": 2}),
]


def test_new_runs_have_the_loss_of_the_library():
    assert set(CHOSEN) == EXPERIMENTS.keys() - {"digits", "peaks", "safety", "streams"}
    usual = {"scale": Settings().scale, "gradient": Settings().reach, "reduction": Settings().reduction}
    assert usual.keys() == set(LOSS)
    assert KNOWN == {"scale": SCALES, "gradient": GRADIENTS, "reduction": REDUCTIONS}
    for name in CHOSEN:
        config = experiment(name).Config()
        arguments = experiment(name).reverse(config)
        assert {field: arguments[field] for field in LOSS} == usual
        assert all(experiment(name).coefficient(config, which) == Settings().weight for which in ("RR", "lRR", "RR1"))


@pytest.mark.parametrize("name, fields", CONFIGS)
def test_how_many_layers_are_compared(name, fields):
    """Held against the plan; and a sum over them is so many times their mean."""
    one = experiment(name)
    config = one.Config(**fields)
    torch.manual_seed(0)
    model, x = one.network(config), torch.rand(2, *SHAPES.get(name, (1, 28, 28)))
    rr = Racecar(model, x, **one.reverse(config))
    for which in ("RR", "lRR", "RR1"):
        if which == "RR1" and (fields.get("layers") == "late" or one.joins):  # the input is not compared
            continue
        mode, found = variants.variant(which, one.joins).mode, {}
        rr.mode = mode
        for rr.reduction in ("sum", "mean"):
            torch.manual_seed(0)
            found[rr.reduction] = float(rr(x)[1].detach())
        count = sum(entry.constrained for entry in rr.plan)
        assert count == (1 if mode == "input" else one.layers(config))
        assert found["sum"] == pytest.approx(count * found["mean"], rel=1e-5)
        if name in CHOSEN:
            summed = replace(config, reduction="sum", scale="relative")
            assert times(one, summed, which) == count
            assert times(one, replace(summed, reduction="mean"), which) == 1
            assert times(one, replace(summed, scale="sum"), which) == 1  # the paper's λ
            assert times(one, summed, "Ort") == 1
        else:
            assert times(one, config, which) == 1


def old(variant, seed=0, coefficient=0.01, **more):
    """A record of information as it was written before the loss was a setting."""
    young = younger(INFORMATION.Config)
    config = {name: value for name, value in INFORMATION.Config().to_dict().items() if name not in young}
    return record(variant, seed, {"test_accuracy": 0.9}, experiment="information", config=config,
                  coefficient=None if variant == "Std" else coefficient, **more)  # fmt: skip


def test_an_old_record_is_shown_as_the_same_loss():
    given = old("RR", tuned={"lr": 0.1, "coefficient": 0.01}, also=[{"config": old("RR")["config"], "tuned": {}}])
    shown = restated(Run(given), INFORMATION)
    assert shown.coefficient == 0.06
    assert shown.record["tuned"] == {"lr": 0.1, "coefficient": 0.06}
    assert {name: shown.config[name] for name in LOSS} == {**FIRST_LOSS, "reduction": "mean"}
    assert shown.config["strength"] == pytest.approx(0.6)
    assert [one.config for one in shown.everywhere] == [shown.config] * 2
    assert [one.coefficient for one in shown.everywhere] == [0.06] * 2
    assert [one.record["tuned"] for one in shown.everywhere] == [shown.record["tuned"], {}]
    assert given["coefficient"] == 0.01  # it stays as it is
    assert given["config"] == old("RR")["config"]
    for variant, coefficient in (("lRR", 0.06), ("RR1", 0.01), ("Ort", 0.01), ("Std", None), ("of ours", 0.01)):
        one = restated(Run(old(variant)), INFORMATION)
        assert one.coefficient == coefficient
        assert one.config == shown.config


def test_what_is_shown_as_it_is():
    few = record("RR", experiment="few-labels", coefficient=0.1, config={"lr": 1e-3})
    peaks = record("RR", experiment="peaks", coefficient=5e-7, config={"lr": 1e-3})
    paper = record("RR", experiment="slices", coefficient=5e-7, config={"scale": "sum", "strength": 1.0})
    foreign = record("RR", experiment="slices", coefficient=0.1, config={"lr": "fast", "strength": 1.0})
    for one in (few, peaks, paper, foreign):
        assert restated(Run(one), experiment(one["experiment"])).record == one


def test_old_and_new_losses_are_judged_apart():
    """The same claims, once for each; the page says which it is, and how λ was converted."""
    now = INFORMATION.Config(scale="relative", gradient="reverse", reduction="mean", strength=0.1).to_dict()
    records = []
    for seed in range(3):
        records += [old("Std", seed, stage="AB"), old("RR", seed, stage="AB")]
        for variant, value in (("Std", 0.5), ("RR", 0.6 + 0.01 * seed)):
            metrics = {"test_accuracy": value}
            records.append(
                record(variant, seed, metrics, experiment="information", stage="AB", config=now,
                       coefficient=0.1 if variant == "RR" else None)
            )  # fmt: skip
    page = section("information", "a", [Run(one) for one in records], INFORMATION)
    found = [one for one in page.findings if one.claim.text == "RR beats Std on swapped labels"]
    seen = {dict(one.setting)["gradient"]: (one.better.coefficient, one.pairs, one.verdict) for one in found}
    assert seen == {"both": (0.06, 3, "undecided"), "reverse": (0.1, 3, "supported")}
    losses = (
        "scale relative, gradient both, reduction mean (that of before)",
        "scale relative, gradient reverse, reduction mean (the default)",
    )
    assert page.about["reverse loss"] == "; ".join(losses)
    assert sum("RR × 6" in note for note in page.notes) == 1
    alone = section("information", "a", [Run(one) for one in records if one["config"] is now], INFORMATION)
    assert not any("RR × 6" in note for note in alone.notes)
    assert "loss = the default" in alone.facts["settings"]


def test_the_papers_own_loss_is_named():
    for name in ("digits", "peaks"):
        page = section(name, "a", [Run(record("RR", coefficient=5e-7, experiment=name))], experiment(name))
        assert page.about["reverse loss"] == "scale sum, gradient both, reduction sum (the paper's)"


def test_the_closing_table(tmp_path):
    config = INFORMATION.Config(**FIRST_LOSS, epochs=1, finetune=1)
    jobs = make_jobs(INFORMATION, config, ["RR"], [0], None, {"RR": [0.01]})
    assert run(jobs, tmp_path) == []
    assert Store(tmp_path).get(jobs[0].ids["A"]).coefficient == 0.01
    lines = summary(jobs, Store(tmp_path)).splitlines()
    rows = [line for line in lines if " RR " in line]
    assert len(rows) >= len(jobs[0].stages)
    assert all(" 0.06 " in line for line in rows)
