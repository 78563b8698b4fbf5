"""The names of results: another one for whatever changes a result, and for nothing else."""

import ast
import re
from collections import defaultdict
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from racecar.reverse.terms import GRADIENTS, REDUCTIONS, SCALES
from racecar_lab import config
from racecar_lab.config import Config, guide
from racecar_lab.datasets import smoke
from racecar_lab.experiment import Stage
from racecar_lab.experiments import EXPERIMENTS, experiment
from racecar_lab.running.jobs import make_jobs
from racecar_lab.running.results import Store
from racecar_lab.training.variants import VARIANTS
from tests.lab.running.quick_configs import QUICK, SLICES
from tests.lab.tiny import ROOT, Tiny, TinyConfig

VALUES = {
    "optimiser": st.sampled_from(("adam", "adamw", "sgd")),
    **dict.fromkeys(("schedule", "autoencoder_schedule"), st.sampled_from(("constant", "cosine", "onecycle"))),
    "precision": st.sampled_from(("float32", "bfloat16", "float16")),
    "nets": st.sampled_from((("linear",), ("norm",), ("two",))),
    "ema": st.floats(0, 0.99),
    "fraction": st.floats(0.01, 1),
    "shipped": st.booleans(),
    "norm": st.booleans(),
    "few-labels.norm": st.sampled_from(("none", "batch", "group")),
    "long-training.norm": st.sampled_from(("none", "batch")),
    "widths": st.sampled_from(((2, 3, 4), (64, 128, 256))),
    "critic_widths": st.sampled_from(((2, 3), (8, 16, 32))),
    **dict.fromkeys(
        ("smoke.widths", "smoke-autoencoder.widths"), st.sampled_from(((2, 3, 4, 3, 2), (8, 16, 16, 8, 8)))
    ),
    "texture-shape.norm": st.sampled_from(("none", "batch")),
    "texture-shape.augment": st.sampled_from(("none", "strong")),
    "split": st.sampled_from(("shape", "random")),
    "fold": st.integers(0, 4),
    "size": st.integers(8, 224),
    "reduced": st.booleans(),
    "shift.norm": st.sampled_from(("none", "batch")),
    "shift.task": st.sampled_from(("digits", "cifar")),
    "system": st.sampled_from(("waves", "advection")),
    "hindcast.size": st.integers(8, 64).map(lambda half: 2 * half),
    "sequences.task": st.sampled_from(("rows", "add", "copy")),
    "sequences.layers": st.integers(1, 9),
    "cell": st.sampled_from(("lstm", "gru", "rnn")),
    "length": st.integers(2, 10**6),
    **dict.fromkeys(("noise", "blur", "contrast"), st.sampled_from(((0.1, 0.3), (1.0, 2.5)))),
    "augment": st.booleans(),
    "decay": st.booleans(),
    "layers": st.sampled_from(("all", "early", "late")),
    "start": st.sampled_from(("torch", "he")),
    "scale": st.sampled_from(SCALES),
    "gradient": st.sampled_from(GRADIENTS),
    "reduction": st.sampled_from(REDUCTIONS),
    "labels": st.sampled_from(((2,), (2, 10), (5, 50, 250))),
    "tune_lrs": st.sampled_from(((1e-3,), (1e-3, 1e-2))),
    "depth": st.sampled_from((3, 6, 9)),
    "share": st.floats(0.01, 1),
    "cost": st.floats(1, 100),
    int: st.integers(1, 10**6),
    float: st.floats(1e-9, 1e6),
}
SKIPPED = {("digits", "valid"), ("peaks", "valid"), ("digits", "shipped"), ("information", "source")}
"""The first two can be 0 only; the others choose data that are not here, see below."""
SKIPPED |= {("mnist", "longer"), ("few-labels", "longer"), ("long-training", "longer")}  # of Std alone
SKIPPED |= {("texture-shape", "longer"), ("texture-shape", "slim")}  # of Std alone; of one more net
SKIPPED |= {(name, field) for name in SLICES for field in ("valid", "grid")}
SKIPPED |= {("few-labels", "task")}  # other data
MANY = ("safety", "streams")
"""A design of many jobs, each variant in its own, and one with methods of its own: tested by themselves."""
FIELDS = {
    name: [f.name for f in fields(QUICK[name]) if (name, f.name) not in SKIPPED]
    for name in EXPERIMENTS
    if name not in MANY
}


ONE = {"safety": {"design": "one"}, **{name: {"grid": False} for name in SLICES}}
"""Settings that no record holds: the run that it describes, and no other."""


def ids(name="peaks", config=None, variant="RR", seed=0, folder=None, **more):
    """Names of the results of one job, by stage."""
    (job,) = make_jobs(experiment(name), config or QUICK[name], [variant], [seed], folder, **more)
    return {stage.name: job.ids[stage.name] for stage in job.stages}


@pytest.mark.parametrize("name", FIELDS)
@settings(max_examples=settings.default.max_examples // 2, phases=[Phase.generate])
@given(data=st.data())
def test_every_setting_counts(name, data):
    wrong = []
    for field in FIELDS[name]:
        kind = type(getattr(QUICK[name], field))
        usual = VALUES.get(f"{name}.{field}", VALUES.get(field, VALUES.get(kind)))
        values = st.floats(0, 0.9) if field == "valid" else usual
        one, other = data.draw(values, field), data.draw(values, field)
        first = ids(name, replace(QUICK[name], **{field: one}))
        second = ids(name, replace(QUICK[name], **{field: other}))
        apart = first.keys() == second.keys() and not set(first.values()) & set(second.values())
        if not (first == second if one == other else apart):
            wrong.append((field, one, other))
    assert not wrong


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if name not in MANY])
def test_names_of_one_run_differ(name):
    """Every variant, weight, seed and stage has a name of its own, of sixteen hexadecimal digits."""
    weights = {v: [0.1, 0.2, 3.0] for v in VARIANTS if VARIANTS[v].meaning}
    jobs = make_jobs(experiment(name), QUICK[name], list(VARIANTS), range(3), None, weights=weights)
    assert len(jobs) == 3 * (1 + 3 * (len(VARIANTS) - 1))
    found = [id for job in jobs for id in job.ids.values()]
    assert len(set(found)) == len(found)
    assert all(re.fullmatch("[0-9a-f]{16}", id) for id in found)
    again = make_jobs(experiment(name), QUICK[name], list(VARIANTS), range(3), None, weights=weights)
    assert [job.ids for job in again] == [job.ids for job in jobs]


def test_published_results_keep_their_names(monkeypatch):
    """They are those that jobs of today have, so that what is there is not trained again. Simulated smoke is not here:
    its checksum is in the records, of one data set and one only. Of the 18,000 nets of the safety map every tenth."""
    count, together, checksums = 0, defaultdict(list), set()
    for run in (run for folder in sorted(ROOT.glob("results/*")) for run in Store(folder).runs()):
        one = run.record
        shared = one["experiment"], run.variant, run.weight, repr(one["config"]), repr(one["tuned"])
        together[shared].append(run)
        if one["experiment"].startswith("smoke"):
            checksums |= set(re.findall("sha256:[0-9a-f]{64}", run.tables.get("data", "")))
    (checksum,) = checksums
    monkeypatch.setattr(smoke, "checksum", lambda _: checksum)
    for number, runs in enumerate(together.values()):
        if runs[0].record["experiment"] == "safety" and number % 10:
            continue
        seeds = {run.seed for run in runs}
        ends = [run for run in runs if run.seed in (min(seeds), max(seeds))]
        one, variant, weight = experiment(runs[0].record["experiment"]), runs[0].variant, runs[0].weight
        fields = {**ONE.get(one.name, {}), **runs[0].config}
        config = one.Config(**{key: tuple(v) if isinstance(v, list) else v for key, v in fields.items()})
        given = {} if weight is None else {variant: [weight]}
        tuned = {variant: runs[0].record["tuned"]}
        jobs = make_jobs(one, config, [variant], {run.seed for run in ends}, None, weights=given, tuned=tuned)
        ids = {job.seed: job.ids for job in jobs if job.base == config}  # a run may go through others, too
        assert [ids[run.seed][run.stage] for run in ends] == [run.id for run in ends]
        count += len(ends)
    assert count > 1000


def test_fields_that_leave_a_name_as_it_was():
    """At that value it is as if they were not there; an experiment's own beside those of all."""

    @dataclass(frozen=True, kw_only=True)
    class Grown(TinyConfig):
        unnamed: ClassVar = {**TinyConfig.unnamed, "depth": 2}
        depth: int = 5

    def names(one):
        return [job.ids for job in make_jobs(Tiny(), one, ["Std", "RR"], [0], None)]

    assert "every" not in QUICK["peaks"].to_name()
    assert replace(QUICK["peaks"], every=2).to_name()["every"] == 2
    assert names(Grown(depth=2)) == names(TinyConfig())
    assert all(a["A"] != b["A"] for a, b in zip(names(Grown()), names(TinyConfig()), strict=True))
    for one in EXPERIMENTS.values():
        assert set(Config.unnamed) <= set(one.Config.unnamed) <= {f.name for f in fields(one.Config)}


def test_what_says_which_runs_to_make_is_in_no_record():
    @dataclass(frozen=True, kw_only=True)
    class Guided(TinyConfig):
        depths: tuple[int, ...] = guide((2, 5))

    @dataclass(frozen=True, kw_only=True)
    class Again(Guided):
        depths: tuple[int, ...] = (3,)  # another default, and no less a guide

    assert Again().to_record() == Guided().to_record() == TinyConfig().to_record()
    assert "depths" in Guided().to_dict()


def test_the_base_knows_no_experiment():
    """It names none of them, and none of their fields."""
    own = {f.name for one in EXPERIMENTS.values() for f in fields(one.Config)} - {f.name for f in fields(Config)}
    words = {node.value for node in ast.walk(ast.parse(Path(config.__file__).read_text())) if hasattr(node, "value")}
    assert not {one for one in words if isinstance(one, str)} & (own | EXPERIMENTS.keys())


def test_experiments_and_versions_count(monkeypatch):
    one = experiment("peaks")
    before = ids()
    monkeypatch.setattr(type(one), "version", one.version + 1)
    assert set(ids().values()).isdisjoint(before.values())
    monkeypatch.undo()
    monkeypatch.setattr(type(one), "name", "troughs")
    assert set(ids().values()).isdisjoint(before.values())
    monkeypatch.undo()
    assert ids() == before


@pytest.mark.parametrize(
    "change", [{"name": "C"}, {"task": "B"}, {"regularised": False}, {"epochs": 7}, {"after": "A"}], ids=str
)
def test_what_a_stage_is_counts(monkeypatch, change):
    """Also for the stages that start from it."""
    one = experiment("information")

    def names(stage):
        stages = (Stage("A"), stage, Stage("last", after=stage.name))
        monkeypatch.setattr(type(one), "stages", lambda self, config: stages)
        return list(ids("information").values())

    stage = Stage("B")
    first, second = names(stage), names(replace(stage, **change))
    assert first[0] == second[0]
    assert first[1] != second[1]
    assert first[2] != second[2]


def test_the_folder_of_data_that_are_made_does_not_count(tmp_path):
    assert ids(folder=tmp_path) == ids()
    assert ids("digits", folder=tmp_path) == ids("digits")
    assert ids("information", folder=tmp_path) == ids("information")


def write_task(path, seed=0):
    """A file of var_u.mat's form with other labels."""
    from scipy.io import savemat

    patterns = np.array([[number >> bit & 1 for bit in range(12)] for number in range(4096)], dtype=np.uint8)
    savemat(path, {"F": patterns, "y": np.random.default_rng(seed).integers(0, 2, (1, 4096)).astype(np.uint8)})
    return path


def test_data_from_a_file_count(tmp_path):
    """What is in the file, not where it is; and whether it is named, or the folder that it is in."""
    for folder in ("a", "b", "c"):
        (tmp_path / folder).mkdir()
    one, same = write_task(tmp_path / "a" / "var_u.mat"), write_task(tmp_path / "b" / "var_u.mat")
    same.write_bytes(one.read_bytes())
    other = write_task(tmp_path / "c" / "var_u.mat", seed=1)
    first = ids("information", folder=one)
    assert ids("information", folder=same) == first
    assert ids("information", replace(QUICK["information"], source="var_u"), folder=one.parent) == first
    assert set(ids("information").values()).isdisjoint(first.values())
    assert set(ids("information", folder=other).values()).isdisjoint(first.values())
