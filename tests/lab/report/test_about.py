"""What a page says before its figures: loss, first weights, cost."""

import re

import pytest

from racecar.reverse.settings import Settings
from racecar_lab.experiment import Experiment, Stage
from racecar_lab.experiments import experiment
from racecar_lab.report.about import about, glossary, loss_of
from racecar_lab.report.costs import step_cost
from racecar_lab.report.groups import gather
from tests.lab.report.records import record, runs


def timed(variant, seed, seconds, fraction=0.125, every=1, **more):
    config = {"fraction": fraction, "every": every, "norm": more.pop("norm", False)}
    cost = {"wall_s": 1.0, "step_s": seconds, "steps": 9, "peak_memory": None}
    return record(variant, seed, {"m": 1.0}, config=config, cost=cost, weight=None if variant == "Std" else 0.1, **more)


def costs(records):
    return step_cost(gather(runs(records)))


def _by(command):
    return {"workers": 1, "command": command}


def test_a_slice_beside_std():
    """By hand: Std has no slice, so that every slice stands beside it; seeds are paired, norms are not mixed."""
    found = [timed("Std", seed, 1.0 + seed, norm=norm) for seed in range(2) for norm in (False, True)]
    found += [timed("RR", seed, 1.5 * (1 + seed)) for seed in range(2)]
    found += [timed("RR", seed, (2.0 + 0.2 * seed) * (1 + seed), fraction=1.0) for seed in range(2)]
    found += [timed("RR", 0, 1.25, every=4, norm=True), timed("Ort", 0, 9.0)]
    assert costs(found) == (
        "RR with 1/8 of the batch 1.50 × Std, RR with 1/8 of the batch in one of 4 steps 1.25 × Std, "
        "RR with all of the batch 2.00 to 2.20 × Std (same seed, same machine)"
    )


def test_what_a_shared_machine_measured_is_no_cost():
    found = [timed("Std", seed, 1.0) for seed in range(2)] + [timed("RR", 0, 1.2), timed("RR", 1, 4.8)]
    assert costs(found).startswith("not known from these runs: single seeds have 1.20 to 4.80 × Std")
    alone = [timed(name, 2, seconds, made=_by("a")) for name, seconds in (("Std", 0.5), ("RR", 0.7))]
    beside = [timed("Std", 3, 0.5, made=_by("a")), timed("RR", 3, 2.0, made=_by("b"))]
    assert costs(found + alone + beside) == "RR with 1/8 of the batch 1.40 × Std (same seed, same machine)"
    found = [timed("Std", 0, 1.0), timed("RR", 0, 0.7)]  # with more to do it cannot take less
    assert costs(found).startswith("not known from these runs: single seeds have 0.70 to 0.70 × Std")


@pytest.mark.parametrize(
    "other",
    [
        timed("Std", 1, 1.0),
        timed("Std", 0, 1.0, norm=True),
        timed("Std", 0, 1.0, made={"device": "another"}),
        timed("Std", 0, 1.0, stage="AB"),
        timed("Std", 0, None),
        timed("Ort", 0, 1.0),
    ],
)
def test_nothing_to_compare_with(other):
    assert costs([timed("RR", 0, 1.2), other]) == ""


LOSSES = {
    "the paper's": {"scale": "sum", "gradient": "both", "reduction": "sum"},
    "the default": {"scale": Settings().scale, "gradient": Settings().reach, "reduction": Settings().reduction},
    "that of before": {"scale": "relative", "gradient": "both", "reduction": "sum"},
    "": {"scale": "mean", "gradient": "weights", "reduction": "sum"},
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("which", ["mnist", "information", "few-labels", "slices"])
def test_a_loss_has_its_name(name, which):
    one = experiment(which)
    told = loss_of(one, one.Config(**LOSSES[name]))
    assert told.partition(" (")[0] == ", ".join(f"{key} {value}" for key, value in LOSSES[name].items())
    assert told.partition(" (")[2].rstrip(")") == name


def test_all_that_varies_is_said(monkeypatch):
    one = experiment("few-labels")
    configs = [one.Config(start=start, scale=scale) for start, scale in (("torch", "relative"), ("he", "sum"))]
    found = [record("RR", 0, {"probe_2": 0.5}, experiment="few-labels", config=each.to_dict()) for each in configs]
    told = about(one, configs, gather(runs(found)))
    assert set(told["first weights"].split("; ")) == {"PyTorch's own", "He's"}
    assert set(re.findall(r"scale (\w+)", told["reverse loss"])) == {"relative", "sum"}
    assert about(one, [], gather(runs(found))) == {}


def test_what_names_mean():
    groups = gather(runs([record("RR", 0, {"probe_10": 0.5, "odd": 1.0}), record("Std", 0, {}, stage="AB")]))

    class Known(Experiment):
        def stages(self, config):
            return Stage("A"), Stage("AB", "B", "A", regularised=False), Stage("B", "B")

    class Joined(Known):
        joins = True

    names = glossary(Known(), [None], groups)
    assert list(names) == ["RR", "Std", "stage A", "stage AB", "probe_10"]
    assert names["stage AB"] == "trained from A's weights on task B without regulariser"
    assert names["RR"] != glossary(Joined(), [None], groups)["RR"]
