"""Which runs belong together."""

import json
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from racecar_lab.report.groups import by_setting, gather
from racecar_lab.report.settings import differing, label
from racecar_lab.training.loss_config import PAPER
from tests.lab.report.records import record, runs


def test_runs_that_differ_in_the_seed_alone():
    found = gather(runs([record(variant, seed, {"m": seed / 10}) for variant in ("RR", "Std") for seed in (2, 0, 1)]))
    assert [(group.variant, list(group.runs)) for group in found] == [("Std", [0, 1, 2]), ("RR", [0, 1, 2])]
    assert found[0].values("m") == {0: 0.0, 1: 0.1, 2: 0.2}
    assert found[0].values("other") == {}
    assert [group.setting for group in found] == [(), ()]


def test_settings_are_the_fields_that_vary():
    configs = [{"net": ["two"], "epochs": 5, "lr": 1e-2}, {"net": ["one", "x"], "epochs": 5, "lr": 1e-3}]
    found = gather(runs([record(config=config) for config in configs]))
    assert [label(group.setting) for group in found] == ["net = one x, lr = 0.001", "net = two, lr = 0.01"]
    group = found[1]
    assert group.matches({"net": ("two",), "epochs": 5})
    assert not group.matches({"net": ["one"]})
    assert not group.matches({"unknown": None})


def test_what_is_tuned_for_a_variant_does_not_keep_it_from_others():
    records = [record("Std", tuned={"lr": 1e-2}), record("RR", tuned={"lr": 1e-3}), record("RR", seed=1)]
    found = gather(runs(records))
    assert {group.setting for group in found} == {()}
    assert [(group.variant, label(group.tuned)) for group in found] == [
        ("Std", "lr = 0.01"), ("RR", ""), ("RR", "lr = 0.001")
    ]  # fmt: skip


def test_a_run_is_shown_wherever_its_setting_belongs():
    """The search chose what is usual for Std: one run is both the usual and the tuned one."""
    both = [record("Std", metrics={"m": 1.0}), record("Std", metrics={"m": 1.0}, tuned={"lr": 1e-4})]
    records = [*both, record("RR", metrics={"m": 2.0}, tuned={"lr": 1e-3}), record("RR", 1, {"m": 3.0})]
    found = gather(runs(records))
    assert [(group.variant, label(group.tuned), group.values("m")) for group in found] == [
        ("Std", "", {0: 1.0}), ("Std", "lr = 0.0001", {0: 1.0}), ("RR", "", {1: 3.0}), ("RR", "lr = 0.001", {0: 2.0})
    ]  # fmt: skip
    both[1] = {**both[0], "config": {"epochs": 10, "lr": 1e-2}, "tuned": {"lr": 1e-4}}
    assert [label(group.setting) for group in gather(runs(both))] == ["lr = 0.0001", "lr = 0.01"]


def test_the_newest_record_of_several_counts():
    def one(id, finished, value):
        return record(metrics={"m": value}) | {"id": id, "made": {"finished": finished}}

    found = gather(runs([one("a", "2026-02-01", 2.0), one("b", "2026-01-01", 1.0), one("c", "2026-01-15", 3.0)]))
    assert found[0].values("m") == {0: 2.0}
    assert sum(len(group.all_runs) for group in found) == 1


def test_runs_that_diverged_are_counted_and_not_among_the_values():
    records = [record("RR", seed, {"m": 1.0}, status="diverged" if seed == 1 else "finished") for seed in range(3)]
    found = gather(runs(records))
    (group,) = found
    assert (list(group.values("m")), group.diverged, len(group.all_runs)) == ([0, 2], [1], 3)


@pytest.mark.parametrize("order", [1, -1])
def test_order(order):
    """Stages as they follow each other, variants as the laboratory has them, weights as numbers."""
    records = [
        record("RR", weight=10.0), record("RR", weight=9.0), record("Std"), record("Ort", weight=0.1),
        record("Mine"), record("Std", stage="B"), record("Std", stage="AA", parent=record("Std")["id"]),
    ]  # fmt: skip
    found = [(group.stage, group.variant, group.weight) for group in gather(runs(records[::order]))]
    expected = [("A", "Std", None), ("A", "Ort", 0.1), ("A", "RR", 9.0), ("A", "RR", 10.0), ("A", "Mine", None)]
    assert found == [*expected, ("B", "Std", None), ("AA", "Std", None)]


def test_stages_in_both_orders():
    """Some nets are trained on A and then on B, others on B and then on A."""
    first = [record("Std", stage="A"), record("RR", stage="B")]
    then = [record("Std", stage="B", parent=first[0]["id"]), record("RR", stage="A", parent=first[1]["id"])]
    groups = gather(runs([*then, *first]))
    assert [(group.variant, group.stage) for group in groups] == [("Std", "A"), ("RR", "A"), ("Std", "B"), ("RR", "B")]


CONFIGS = st.lists(
    st.dictionaries(st.sampled_from("abc"), st.sampled_from([0, 0.5, None, [1, 2], [1, [2]], {"x": 1}, "word"])),
    max_size=5,
)


@given(CONFIGS, st.sets(st.sampled_from("abc"), max_size=1))
def test_what_tells_configurations_apart(configs, but):
    """Two have the same setting where they differ in nothing but ``but``; a field that all share is in none. A list is
    the same as the tuple that it was before JSON."""
    settings = differing(configs, but)
    for (one, first), (other, second) in product(zip(configs, settings, strict=True), repeat=2):
        same = all(one.get(name) == other.get(name) for name in {*one, *other} - but)
        assert (first == second) is same
    for name in "abc":
        shared = all(config.get(name) == configs[0].get(name) for config in configs)
        assert any(name in dict(setting) for setting in settings) is (not shared and name not in but)
    assert differing([json.loads(json.dumps(config)) for config in configs], but) == settings


def test_one_label_for_a_setting_everywhere():
    """The page's tables, an experiment's own figures and the table after a run tell the same settings apart."""
    some = runs([record(config={"sizes": [784, 2], "cost": cost, "lr": 0.1}) for cost in (1.0, 1.5)])
    assert [label(group.setting) for group in gather(some)] == ["cost = 1", "cost = 1.5"]
    assert list(by_setting(some)) == [" (cost = 1)", " (cost = 1.5)"]
    assert list(by_setting(some, but=("cost",))) == [""]


def test_a_loss_that_has_a_name_is_one_setting():
    """Where all its fields tell settings apart; other losses are told by their fields."""
    paper = (("lr", 1.0), *PAPER.items(), ("net", "two"))
    assert label(paper) == "lr = 1, net = two, loss = the paper's"
    assert label(tuple({**PAPER, "gradient": "weights"}.items())) == "scale = sum, gradient = weights, reduction = sum"
    assert label((("scale", "sum"),)) == "scale = sum"
