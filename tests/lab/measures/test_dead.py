"""Nets that finish and have learned nothing: found, named in the record, counted on the page and in the table."""

import torch
from torch import nn

from racecar.cli.app import run as command
from racecar_lab.experiments import EXPERIMENTS
from racecar_lab.measures.dead import dead_layers
from racecar_lab.report.section import section
from racecar_lab.running.results import Store
from racecar_lab.running.run import DEAD, Run
from tests.lab.tiny import Tiny, make, results, run


def test_a_dead_net_is_told_of(tmp_path, monkeypatch):
    """Its loss is finite, and it has learned nothing: the record says so, and the page."""
    assert run(make(["Std"], [0]), tmp_path / "alive") == []
    for one in results(tmp_path / "alive").values():
        assert one["note"] == ""
        assert one.get("dead") == ([] if one["stage"] == "A" else None)  # looked for where the regulariser was on

    def network(self, config, dropout=0.0):
        model = real(self, config, dropout)
        with torch.no_grad():
            model[-1].weight.zero_()
        model[-1].weight.requires_grad_(False)
        return model

    real = Tiny.network
    monkeypatch.setattr(Tiny, "network", network)
    assert run(make(["Std"], [0]), tmp_path / "dead") == []
    found = results(tmp_path / "dead").values()
    assert {(one["status"], one["note"]) for one in found} == {("finished", DEAD)}
    assert [one["dead"] for one in found if one["stage"] == "A"] == [[]]  # a bias is left: no layer sees zeros alone
    page = section("tiny", "tiny", list(Store(tmp_path / "dead").runs()), Tiny())
    assert sum(note == f"Finished, but: Std, A: {DEAD} (seed 0)." for note in page.notes) == 1


def test_layers_that_see_nothing():
    """All that comes after a layer of zeros, without biases; the net stays as it is."""
    model = nn.Sequential(*(nn.Linear(4, 4, bias=False) if i % 2 == 0 else nn.ReLU() for i in range(5)))
    x = torch.rand(8, 4)
    with torch.no_grad():
        model[0].weight.fill_(0.5)
        model[2].weight.fill_(-1.0)
    assert dead_layers(model, x) == ["4", "output"]
    with torch.no_grad():
        model[2].weight.copy_(torch.eye(4))
    assert dead_layers(model, x) == []
    assert model.training
    model[0].weight.data.zero_()
    assert dead_layers(model, x) == ["2", "4", "output"]


def test_dead_nets_are_counted(tmp_path, monkeypatch, capsys):
    """On the page and in the command's closing table."""
    real = Tiny.network

    def network(self, config, dropout=0.0):
        model = real(self, config, dropout)
        for parameter in model.parameters():
            parameter.requires_grad_(parameter is next(model.parameters()))
        nn.init.zeros_(model[3].weight)
        nn.init.zeros_(model[3].bias)
        return model

    monkeypatch.setitem(EXPERIMENTS, "tiny", Tiny())
    monkeypatch.setattr(Tiny, "network", network)
    arguments = ["run", "tiny", "--variants", "Std", "--seeds", "2", "--workers", "1", "--set", "finetune=0"]
    assert command([*arguments, "--out", str(tmp_path)]) == 0
    assert "2 (2 dead)" in capsys.readouterr().out
    runs = list(Store(tmp_path).runs())
    assert [one.record["dead"] for one in runs] == [["5"]] * 2
    (results_table, *_) = section("tiny", "tiny", runs, Tiny()).tables
    assert {row["runs"].note for row in results_table.rows} == {"2 of 2 dead"}
    for one in runs:
        one.record["note"] = ""
    assert all(one.dead for one in runs)
    assert not any(Run({**one.record, "dead": []}).dead for one in runs)
