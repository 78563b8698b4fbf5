"""The streams through the command: cut and resumed, searched and judged, timed, and refused."""

import json
from types import SimpleNamespace

import pytest
import torch

from racecar_lab.experiment import Measured
from racecar_lab.experiments.streams.conditions import by_conditions
from racecar_lab.experiments.streams.learning import Learning
from racecar_lab.experiments.streams.published_searches import scores_of_search
from racecar_lab.experiments.streams.transfer import SearchScores, scores_of_runs
from racecar_lab.running.engines import streams
from racecar_lab.running.results import Store
from racecar_lab.training import checkpoint

pytestmark = pytest.mark.usefixtures("no_data")

LITTLE = ("--quick", "--set", "stream=permuted", "--set", "net=mlp2", "--set", "tasks=2", "--set", "passes=3")


def test_cut_and_resumed(cli, tmp_path, monkeypatch):
    """Bit for bit as if it had not been interrupted at its first checkpoint; what is there is not done again."""
    advance, advanced = Learning.advance, []
    monkeypatch.setattr(Learning, "advance", lambda self: advanced.append(self) or advance(self))
    arguments = ("run", "streams", *LITTLE, "--seeds", "2", "--variants", "Std")
    whole = cli(*arguments, "--out", "whole")
    assert whole.status == 0
    assert "a quick run: no evidence, and nothing of it is judged" in whole.out
    assert "forty digits" in whole.err
    steps = len(advanced)
    assert steps > 1
    begun, write = tmp_path / "killed" / "checkpoints", checkpoint.write

    def interrupted(path, state):
        write(path, state)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write", interrupted)
        assert cli(*arguments, "--out", "killed", "--checkpoint-every", "0").status == 130
    assert not (tmp_path / "killed" / "records").exists()
    assert len(list(begun.glob("*.pt"))) == 1
    said = cli(*arguments, "--out", "killed", "--resume")
    assert said.status == 0, said.err
    assert len(advanced) == 2 * steps
    assert not list(begun.glob("*.pt"))
    one, other = (Store(tmp_path / name).runs() for name in ("whole", "killed"))
    assert len(one) == 2
    for a, b in zip(one, other, strict=True):
        assert (a.id, a.record["metrics"]) == (b.id, b.record["metrics"])
        assert a.arrays.keys() == b.arrays.keys() >= {"online", "dead_units"}
        assert all(torch.equal(values, b.arrays[name]) for name, values in a.arrays.items())
    again = cli(*arguments, "--out", "killed")
    assert "2 of 2 stages are there already" in again.err


class Made:
    """Nets that are trained already: with the learning rate and the weight that suit them best at 1e-2 and 10."""

    total, step_s, over = 100, 2e-3, True

    def __init__(self, jobs, device):
        self.jobs, self.right = jobs, torch.zeros(len(jobs))

    def advance(self):
        pass

    def state_dict(self):
        return {}

    def finite(self):
        return [job.seed != 3 for job in self.jobs]

    def measured(self, arrays):
        far = [
            torch.tensor([job.config.lr / 1e-2, (job.weight or 10.0) / 10.0]).log10().abs().sum() for job in self.jobs
        ]
        return [
            Measured({"online_accuracy": float(0.9 - 0.1 * one + 1e-3 * (job.seed % 7)), "first_online_accuracy": 0.5})
            for one, job in zip(far, self.jobs, strict=True)
        ]


@pytest.fixture
def trained(monkeypatch):
    monkeypatch.setattr(streams, "learning", Made)


def test_searched_beyond_the_edge_and_judged_on_other_seeds(cli, trained, tmp_path, undrawn):
    """In two processes with one folder: each method by itself, then the file of both."""
    search = ("search", "streams", "--quick", "--set", "stream=labels", "--out", "s")
    for name in ("linear", "Std", "linear,Std"):
        said = cli(*search, "--variants", name)
        assert said.status == 0, said.err
    assert "linear: lr 0.01, second 0, weight 10" in said.out
    assert "may lie beyond" not in said.out
    tuned = json.loads((tmp_path / "s" / "tuned.json").read_text())
    found = tuned["variants"]["linear"]
    assert (found["lr"], found["weight"]) == (1e-2, 10)
    assert {row["lr"] for row in found["tried"]} == {1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2}
    assert {run.seed for run in Store(tmp_path / "s").runs()} == {1000, 1001, 1002}
    records = Store(tmp_path / "s").runs()
    conditions, methods = scores_of_search(tuned)  # the file says of all settings what the records say
    assert methods == {
        name: SearchScores(*map(pytest.approx, scores)) for name, scores in scores_of_runs(conditions, records).items()
    }
    assert len(methods["linear"].scores) == len(methods["linear"].first) > 20
    assert by_conditions(records).keys() == {conditions}
    run = ("run", "streams", "--quick", "--seeds", "4", "--variants", "linear,Std", "--out", "r")
    said = cli(*run, "--tuned", "s/tuned.json")
    assert said.status == 0, said.err
    assert "not finite at the end, counted with what they got: Std 1, linear 1" in said.out
    judged = [one for one in Store(tmp_path / "r").runs() if one.variant == "linear"]
    assert [one.record["tuned"]["lr"] for one in judged] == [1e-2] * 4
    for folder, words in (("s", ("over learning rates", "Does one λ do")), ("r", ("while learning", "no evidence"))):
        assert cli("report", folder).status == 0
        page = (tmp_path / folder / "report.md").read_text()
        assert all(one in page for one in words)


def test_a_budget(cli, trained, tmp_path):
    """Every method timed, all of it reckoned, and nothing kept."""
    said = cli("run", "streams", "--quick", "--variants", "Std,linear", "--budget", "--out", "b")
    assert said.status == 0, said.err
    rows = [line.split() for line in said.out.splitlines()]
    assert ["linear", "2", "100", "2", "ms", "200", "ms"] in rows
    assert "in all 400 ms" in said.out
    assert not (tmp_path / "b").exists()


REFUSED = {
    "no method 'Linear'; did you mean 'linear'?": ("--variants", "Linear"),
    "no method 'WD'; the methods are: Std, L2": ("--variants", "WD"),
    "--engine vmap: streams trains all nets of a method as one stack": ("--engine", "vmap"),
    "--workers 3: streams trains all nets": ("--workers", "3"),
    "epochs has no meaning for streams: passes says": ("--set", "epochs=3"),
    "momentum has no meaning for streams": ("--set", "momentum=0.5"),
    "optimiser must be adam or sgd": ("--set", "optimiser=adamw"),
    "stream must be one of permuted, labels": ("--set", "stream=digits"),
    "stream pairs is not of digits": ("--set", "stream=pairs"),
    "images=41: there are 30 to train on": ("--set", "images=41"),
    "do not fill a batch of 64": ("--set", "batch=64"),
    "seed 1000: seeds from 1000 on are for a search": ("--first-seed", "1000"),
    "norm=layer: LayerNorm has a norm of its own": ("--variants", "LayerNorm", "--set", "norm=layer"),
    "norm=batch: RR does not keep the statistics": ("--variants", "RR", "--set", "norm=batch"),
    "--weight 'Std=1': Std has no weight": ("--variants", "Std", "--weight", "Std=1"),
}


@pytest.mark.parametrize("words", REFUSED)
def test_bad_input(words, cli):
    """One sentence, before anything is trained."""
    said = cli("run", "streams", "--quick", *REFUSED[words])
    *_, last = said.err.splitlines()
    assert said.status == 2
    assert last.startswith("racecar: ")
    assert words in last
    assert "Traceback" not in said.err


def test_only_streams_has_a_budget(refused):
    assert "--budget: only streams" in refused("run", "peaks", "--quick", "--budget")


def test_a_process_that_is_one_of_several_is_refused(cli, monkeypatch):
    monkeypatch.setattr("racecar_lab.running.runner.distributed", SimpleNamespace(launched=lambda: True))
    said = cli("run", "streams", "--quick", "--variants", "Std")
    assert (said.status, "torchrun: streams trains" in said.err) == (2, True)
