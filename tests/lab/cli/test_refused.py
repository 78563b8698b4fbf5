"""What cannot be run is refused in one line, with exit status 2, before anything is trained or written."""

import pytest
import torch

from racecar.cli import app
from racecar_lab.experiments import experiment
from tests.lab.cli.commands import INFORMATION, ONE, PEAKS

pytestmark = pytest.mark.usefixtures("no_data")

REFUSED = [
    (("run",), "NAME"),
    (("run", "peak"), "did you mean 'peaks'?"),
    (("sweep", "nothing", "--over", "lr=1"), "the experiments are: digits, peaks, information"),
    (("search", "peaks"), "'peaks' has no search"),
    (("search", *INFORMATION, "--variants", "Drop"), "Drop"),
    (("search", *INFORMATION, "--set", "optimiser=adamw"), "adamw"),
    (("search", *INFORMATION, "--variants", "RR", "--set", "lr=1e-3"), "lr"),
    ((*PEAKS, "--variants", "Std,Rr"), "no variant 'Rr'"),
    ((*PEAKS, "--set", "epoch=3"), "did you mean 'epochs'?"),
    ((*PEAKS, "--set", f"epochs={10**23}"), "epochs must be at most 1,000,000,000"),
    (("sweep", *PEAKS[1:], "--over", f"epochs={10**23}"), "epochs must be at most 1,000,000,000"),
    ((*PEAKS, "--weight", "RR"), "write VARIANT=a,b,c"),
    ((*PEAKS, "--weight", "Std=1"), "Std has no weight"),
    (("sweep", *PEAKS[1:], "--over", "lr=1e-4", "--weight", "Std=1"), "Std has no weight"),
    (("sweep", *PEAKS[1:], "--over", "weight=1", "--weight", "RR=2"), "RR"),  # which of the two?
    (("sweep", *PEAKS[1:], "--over", "lr=1e-4", "--cuda-graphs"), "--cuda-graphs goes with --device cuda"),
    (("search", *INFORMATION, "--variants", "RR", "--engine", "vmap", "--compile"), "does not compile"),
    (("search", *INFORMATION, "--variants", "RR", "--weight", "Ort=1"), "Ort is not run"),
    ((*PEAKS, "--weight", "XX=1"), "no variant 'XX'"),
    ((*PEAKS, "--weight", "RR=many"), "must be of type float, not 'many'"),
    ((*PEAKS, "--variants", "Std", "--weight", "RR=1"), "RR"),  # which is not run
    ((*PEAKS, "--engine", "cloud"), "here, vmap, ray"),
    ((*PEAKS, "--device", "gpu"), "gpu"),
    ((*PEAKS, "--device", "meta"), "--device meta: this torch cannot train there"),
    ((*PEAKS, "--device", "meta", "--engine", "vmap"), "--device meta"),
    (("search", *INFORMATION, *ONE, "--device", "meta"), "--device meta"),
    (("search", *INFORMATION, "--set", "valid=0"), "valid"),
    ((*PEAKS, "--seeds", "-1"), "seeds"),
    ((*PEAKS, "--seeds", "many"), "--seeds"),
    ((*PEAKS, "--seeds", "99999999999999999999"), "--seeds 99999999999999999999: at most 100,000 at once"),
    (("sweep", *PEAKS[1:], "--over", "lr=1,2", "--seeds", "100001"), "at most 100,000"),
    (("search", *INFORMATION, "--variants", "RR", "--seeds", "99999999999999"), "at most 100,000"),
    ((*PEAKS, "--workers", "-1"), "workers"),
    ((*PEAKS, "--data", "nowhere"), "nowhere"),
    ((*PEAKS, "--tuned", "nofile"), "--tuned nofile: there is no such file; give the tuned.json of a `racecar search`"),
    ((*PEAKS, "--tuned", "nofile.jsonl#one"), "--tuned nofile.jsonl: there is no such file"),
    ((*PEAKS, "--tuned", "."), "--tuned .: there is no such file"),
    ((*PEAKS, "--nothing"), "--nothing"),
    (("run", *INFORMATION, *ONE, "--data", "var_u.mat"), "var_u.mat"),  # mistyped: not the other task instead
    (("run", *INFORMATION, *ONE, "--set", "source=var_u"), "var_u.mat"),
    (("run", "digits", "--out", "out"), "racecar data fetch mnist"),
    (("sweep", *PEAKS[1:]), "over"),
    (("sweep", *PEAKS[1:], "--over", "lr"), "write FIELD=a,b,c"),
    (("sweep", *PEAKS[1:], "--over", "lr="), "write FIELD=a,b,c"),
    (("sweep", *PEAKS[1:], "--over", "weight=1,x"), "weight must be of type float"),
    (("sweep", *PEAKS[1:], "--over", "weight=1e-3,1e-2", "--variants", "Std"), "weight"),  # it has none
]


@pytest.mark.parametrize("arguments, words", REFUSED, ids=[" ".join(a[-2:]) for a, _ in REFUSED])
def test_refused(refused, search, arguments, words, tmp_path):
    """Before anything is trained or written."""
    assert words in refused(*arguments)
    assert [one.name for one in tmp_path.iterdir()] == ["nets.py"]


@pytest.mark.parametrize("option", ["--out", "--data", "--tuned"])
def test_an_empty_path_is_not_the_current_folder(refused, option, tmp_path):
    """As ``--out "$DIR"`` has it where the shell knows no DIR."""
    for given in ([option, ""], [f"{option}="]):
        assert f"{option} is empty" in refused(*PEAKS, *ONE, *given)
    assert [one.name for one in tmp_path.iterdir()] == ["nets.py"]


@pytest.mark.parametrize("engine", ["vmap", "ray"])
def test_torchrun_does_not_turn_an_engine_into_another(cli, monkeypatch, tmp_path, engine):
    """The first of its processes says so, the others end with the same status."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank, lines in (("0", 1), ("1", 0)):
        monkeypatch.setenv("RANK", rank)
        result = cli(*PEAKS, *ONE, "--engine", engine)
        assert (result.status, result.out, result.err.count("\n")) == (2, "", lines)
        assert not lines or "--engine here" in result.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("count, devices", [(0, "cpu"), (2, "cpu, cuda:0, cuda:1")])
def test_fewer_cuda_devices(refused, monkeypatch, count, devices):
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda") if count else None)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: count)
    assert refused(*PEAKS, "--device", "cuda:2").endswith(f"this torch cannot train there; use {devices}\n")


def test_out_is_a_file(refused, tmp_path):
    (tmp_path / "out").write_text("")
    assert "out" in refused(*PEAKS)


def test_errors_of_ours_are_not_called_the_users(monkeypatch):
    """A KeyError is a bug and shows where."""
    monkeypatch.setattr(type(experiment("peaks")), "configs", lambda self, config, folder: {}["x"])
    with pytest.raises(KeyError):
        app.run([*PEAKS])
