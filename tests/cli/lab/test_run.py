"""``racecar list``, ``run``, ``sweep`` and ``search``, in this process and on very small settings."""

import json
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import pytest
import torch
from scipy.io import savemat

from racecar.cli import app
from racecar.cli.lab.settings import tuned_of
from racecar.lab.experiment import Measured
from racecar.lab.experiments import EXPERIMENTS, experiment, information
from racecar.lab.running.results import Store
from racecar.lab.search_space import Search

PEAKS = ("run", "peaks", "--quick", "--set", "epochs=2", "--set", "nets=linear", "--workers", "1", "--out", "out")
INFORMATION = ("information", "--set", "epochs=1", "--set", "finetune=1", "--workers", "1", "--out", "out")
ONE = ("--variants", "Std", "--seeds", "1")


@pytest.fixture(autouse=True)
def no_data(tmp_path, monkeypatch):
    """Nothing here needs data from elsewhere."""
    monkeypatch.setenv("RACECAR_DATA", str(tmp_path / "nothing"))


@pytest.fixture(scope="module")
def known():
    """What `information` measured first, by the name of the function."""
    return {}


@pytest.fixture(autouse=True)
def measured_once(monkeypatch, known):
    """What `information` measures is not looked at here, and takes longer than to train: one net's for all."""

    def kept(name):
        measure = getattr(information, name)

        def call(*given, **more):
            if name not in known:
                known[name] = measure(*given, **more)
            return known[name]

        return call

    monkeypatch.setattr(information, "SWEEP", (30,))
    for name in ("plane", "invertibility"):
        monkeypatch.setattr(information, name, kept(name))


def records(folder):
    return [run.record for run in Store(folder).runs()]


def rows(text):
    """The table that a command ends with: head → cell, of each line. It may come in parts, side by side on paper."""
    lines = text.splitlines()
    whole = []
    for rule in (i for i, line in enumerate(lines) if line and set(line) <= set("- ")):
        starts = [m.start() for m in re.finditer("-+", lines[rule])]
        cuts = list(zip(starts, [*starts[1:], None], strict=True))
        end = next((i for i in range(rule, len(lines)) if not lines[i] or lines[i].startswith("Data sets: ")), None)
        head, *body = [[line[a:b].strip() for a, b in cuts] for line in (lines[rule - 1], *lines[rule + 1 : end])]
        part = [dict(zip(head, cells, strict=True)) for cells in body]
        whole = [one | more for one, more in zip(whole, part, strict=True)] if whole else part
    return whole


# Help


@pytest.mark.parametrize(
    "command",
    ["list", "run", "sweep", "search", "report", "explain", "inspect", "data list", "data check", "data fetch"],
)
def test_help_has_an_example(cli, command):
    result = cli(*command.split(), "--help")
    assert result.status == 0
    assert f"racecar {command}" in " ".join(result.out.split()).partition("Example: ")[2]


def test_examples_name_what_there_is(cli):
    """The options and settings of an example exist: it is parsed as far as anything can be without training."""
    for command in ("run", "sweep", "search"):
        text = " ".join(cli(command, "--help").out.split())
        words = shlex.split(re.search(r"Example: racecar (.*)$", text)[1])
        assert words[0] == command
        assert words[1] in EXPERIMENTS
        for option in (word for word in words if word.startswith("--")):
            assert f" {option} " in text.partition("Example")[0]


def test_list(cli):
    result = cli("list")
    assert (result.status, result.err) == (0, "")
    found = {row["name"]: row for row in rows(result.out)}
    assert list(found) == list(EXPERIMENTS)
    for name, one in EXPERIMENTS.items():
        assert found[name]["what"] == one.title
        assert found[name]["variants"].split(",") == list(one.variants)
        assert found[name]["seeds"] == str(one.seeds)
        assert found[name]["data"].partition(" (")[0] == (", ".join(one.needs(one.Config())) or "none")
    assert found["digits"]["data"] == "mnist (quick: none)"


# Run


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """What `ran` leaves, for those who ask for it later: a folder, and what was said."""
    return tmp_path_factory.mktemp("trained") / "out", []


@pytest.fixture
def ran(cli, trained, tmp_path):
    """Peaks, two variants and two seeds; trained once, and copied with the times of its files."""
    folder, said = trained
    if said:
        shutil.copytree(folder, tmp_path / "out")
        return said[0]
    result = cli(*PEAKS, "--variants", "Std,RR", "--seeds", "2")
    assert (result.status, result.err) == (0, "")
    shutil.copytree(tmp_path / "out", folder)
    said.append(result)
    return result


def test_run(ran, cli):
    found = records("out")
    assert {(one["variant"], one["seed"]) for one in found} == {(v, s) for v in ("Std", "RR") for s in (0, 1)}
    assert {one["status"] for one in found} == {"finished"}
    assert {one["config"]["epochs"] for one in found} == {2}
    assert {one["config"]["lr"] for one in found} == {4e-4}  # --quick's, which nothing overrides
    assert ran.out.splitlines()[-1] == "results: out   page: racecar report out"
    for row in rows(ran.out):
        some = [one["metrics"] for one in found if one["variant"] == row["variant"]]
        assert row["runs"] == "2"
        assert row["stage"] == "A"
        assert row["coefficient"] == ("5e-07" if row["variant"] == "RR" else "")
        for metric in ("test_accuracy", "cosine_1", "cosine_2", "carried", "ssim"):
            values = [one[metric] for one in some]
            assert row[metric] == f"{mean(values):.3f} ± {stdev(values):.3f}"


def test_the_table_fits_and_explains_itself(ran, cli):
    lines = ran.out.splitlines()
    assert max(map(len, lines)) <= 100
    assert "coefficient: λ for RR." in lines
    assert "stage: A, trained from fresh weights." in lines
    assert any(line.startswith("Mean ± standard deviation") for line in lines)
    assert not any(line.startswith("verdict: ") for line in lines), "a quick run is no evidence"
    swept = cli(
        "sweep",
        *PEAKS[1:],
        "--over",
        "lr=1e-4,1e-3",
        "--set",
        "precision=bfloat16",
        "--variants",
        "Std",
        "--seeds",
        "1",
        "--set",
        "strength=0.000000123456789",
        "--set",
        "momentum=0.123456789",
    )
    assert max(map(len, swept.out.splitlines())) <= 100


def test_the_verdict_is_that_of_the_page(cli, undrawn):
    ran = cli("run", *INFORMATION, "--variants", "Std,RR", "--seeds", "2")
    assert cli("report", "out").status == 0
    (said,) = re.findall("^verdict: (.*); (.*)$", ran.out, re.MULTILINE)
    assert re.search(r"\d+ × not run", said[1])
    page = (Store("out").folder / "report.md").read_text()
    assert all(part in page for part in said)


def test_a_checkpoint_that_is_not_used_is_named(cli, monkeypatch):
    def interrupt(self, config, trained):
        raise KeyboardInterrupt

    arguments = [*PEAKS, *ONE, "--checkpoint-every", "0"]
    with monkeypatch.context() as patch:
        patch.setattr(type(experiment("peaks")), "measure", interrupt)
        assert cli(*arguments).status == 130
    (path,) = (Store("out").folder / "checkpoints").iterdir()
    assert cli(*arguments, "--resume", "--set", "lr=1").err == ""
    result = cli(*arguments)
    assert result.err == f"note: begun before, and started anew for want of --resume: {path}\n"
    assert cli(*arguments).err == "1 of 1 stages are there already\n"


def test_commands_can_be_pasted(cli):
    result = cli(*PEAKS[:-1], "my out", *ONE)
    command = result.out.splitlines()[-1].partition("page: ")[2]
    assert shlex.split(command) == ["racecar", "report", "my out"]


def test_out_of_memory(cli, monkeypatch):
    def fails(self, config, trained):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr(type(experiment("peaks")), "measure", fails)
    result = cli(*PEAKS, *ONE)
    assert result.status == 2
    assert "peaks Std seed 0 failed: out of memory in stage A: try --workers 1" in result.err.splitlines()[0]


def test_what_is_there_is_skipped(ran, cli, tmp_path):
    """However it is run: engine, workers, checkpoints and bars do not change a result."""
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("out/*/*")}
    same = (*PEAKS, "--variants", "Std,RR", "--seeds", "2")
    for more in ((), ("--engine", "vmap"), ("--checkpoint-every", "0"), ("--resume",), ("--tensorboard",)):
        again = cli(*same, *more)
        assert again.status == 0
        assert again.err == "4 of 4 stages are there already\n"
        assert again.out == ran.out
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("out/*/*")} == before


@pytest.mark.parametrize(
    "more", [("--set", "lr=1e-3"), ("--set", "beta=0.2"), ("--coefficient", "RR=1e-6"), ("--variants", "Ort")], ids=str
)
def test_what_is_changed_is_run(ran, cli, more):
    assert cli(*PEAKS, "--variants", "RR", "--seeds", "1", *more).err == ""
    assert len(records("out")) == 5


def test_more_seeds_are_added(ran, cli):
    result = cli(*PEAKS, "--variants", "Std,RR", "--seeds", "3")
    assert result.err == "4 of 6 stages are there already\n"
    assert {row["runs"] for row in rows(result.out)} == {"3"}


@pytest.mark.parametrize("command", [("run",), ("sweep", "--over", "beta=0.2")])
def test_seeds_that_begin_later(command, cli):
    result = cli(*command, *PEAKS[1:], "--variants", "Std", "--seeds", "2", "--first-seed", "7")
    assert (result.status, result.err) == (0, "")
    assert {one["seed"] for one in records("out")} == {7, 8}


def test_the_record_says_how_it_was_made(cli):
    arguments = [*PEAKS, *ONE]
    cli(*arguments)
    (one,) = records("out")
    assert one["made"]["command"] == f"racecar {' '.join(arguments)}"
    assert one["made"]["engine"] == "here"
    assert one["made"]["torch"] == torch.__version__
    assert one["made"]["device"].startswith("CPU")


def test_several_coefficients(cli):
    result = cli(*PEAKS, "--variants", "RR,Ort", "--seeds", "1", "--coefficient", "RR=1e-6, 1e-7")
    assert [(row["variant"], row["coefficient"]) for row in rows(result.out)] == [
        ("RR", "1e-06"),
        ("RR", "1e-07"),
        ("Ort", "0.1"),
    ]


@pytest.mark.parametrize(
    "more", [("--variants", "Std,Std"), ("--variants", "RR", "--coefficient", "RR=1e-6,1e-6")], ids=["variant", "λ"]
)
def test_what_is_named_twice_counts_once(cli, more):
    """Two runs of one seed would be called two runs, with a spread of 0."""
    (row,) = rows(cli(*PEAKS, "--seeds", "1", *more).out)
    assert row["runs"] == "1"
    assert "±" not in row["cosine_1"]


def test_a_metric_that_is_no_number(cli, monkeypatch):
    """One of two seeds: nothing is lost, and the table has the mean of what there is."""

    def measure(self, config, trained):
        return Measured({"good": 0.5, "bad": float("nan") if trained.seed else 2.0}, arrays=trained.history)

    monkeypatch.setattr(type(experiment("peaks")), "measure", measure)
    result = cli(*PEAKS, "--variants", "Std", "--seeds", "2")
    assert result.status == 0
    (row,) = rows(result.out)
    assert (row["runs"], row["good"], row["bad"]) == ("2", "0.500 ± 0.000", "2.000")


def test_diverged(cli, undrawn):
    """Not an error: it is what came of it, and the table and the page say so."""
    wild = ("--set", "optimiser=sgd", "--set", "lr=1e36")
    result = cli(*PEAKS, "--variants", "Std", "--seeds", "2", *wild)
    assert result.status == 0
    (row,) = rows(result.out)
    assert row["runs"] == "2 (2 diverged)"
    assert {one["status"] for one in records("out")} == {"diverged"}
    report = cli("report", "out")
    assert (report.status, report.err) == (0, "")


def test_a_job_that_fails_is_named_and_the_others_are_done(cli, monkeypatch):
    one = experiment("peaks")
    measure = type(one).measure

    def fails(self, config, trained):
        if trained.seed == 0:
            raise KeyError("vectors")
        return measure(self, config, trained)

    with monkeypatch.context() as patch:
        patch.setattr(type(one), "measure", fails)
        result = cli(*PEAKS, "--variants", "Std", "--seeds", "2")
    assert result.status == 2
    assert result.err.splitlines() == [
        "racecar: peaks Std seed 0 failed: KeyError: 'vectors'",
        "racecar: 1 of 2 jobs failed; what was finished is in out",
    ]
    assert [one["seed"] for one in records("out")] == [1]
    assert cli(*PEAKS, "--variants", "Std", "--seeds", "2").err == "1 of 2 stages are there already\n"


def test_interrupted(cli, monkeypatch):
    def interrupt(self, config, trained):
        raise KeyboardInterrupt

    monkeypatch.setattr(type(experiment("peaks")), "measure", interrupt)
    result = cli(*PEAKS, *ONE)
    again = f"racecar {' '.join((*PEAKS, *ONE))} --resume"
    line = f"racecar: interrupted; what was finished is in out; to go on: {again}\n"
    assert (result.status, result.out, result.err) == (130, "", line)


@pytest.mark.parametrize(
    "engine, bad, words",
    [("here", "{", "is no record"), ("vmap", {"metrics": 3}, "has no object for metrics: 3")],
)
def test_a_broken_record_is_named_and_the_other_jobs_are_done(ran, cli, engine, bad, words):
    path = next(path for path in sorted((Store("out").folder / "records").iterdir()))
    good = json.loads(path.read_text())
    path.write_text(bad if isinstance(bad, str) else json.dumps(good | bad))
    result = cli(*PEAKS, "--variants", "Std,RR", "--seeds", "3", "--engine", engine)
    assert result.status == 2
    first, second, last = result.err.splitlines()
    assert first == "4 of 6 stages are there already"
    job, problem = f"racecar: peaks {good['variant']}.* seed {good['seed']} failed", f"ValueError: {path} {words}"
    assert re.fullmatch(f"{job}: {problem}.*; delete it to train that stage again", second)
    assert last == "racecar: 1 of 6 jobs failed; what was finished is in out"
    assert {row["variant"]: row["runs"] for row in rows(result.out)} == {"Std": "3", "RR": "3"} | {good["variant"]: "2"}
    path.unlink()
    assert cli(*PEAKS, "--variants", "Std,RR", "--seeds", "2").out == ran.out


WHERE = [
    (("run", *PEAKS[1:-2]), "peaks-quick", "quick"),
    (("run", "peaks", *PEAKS[3:-2]), "peaks", ""),
    (("sweep", *PEAKS[1:-2], "--over", "beta=0.2"), "peaks-quick", "quick"),
    (("search", *INFORMATION[:-2]), "information-search", "search"),
    (("search", *INFORMATION[:-2], "--quick"), "information-search-quick", "search"),
]


@pytest.mark.parametrize("arguments, name, purpose", WHERE, ids=[f"{a[0]} {name}" for a, name, _ in WHERE])
def test_what_is_no_evidence_goes_elsewhere(cli, search, arguments, name, purpose, tmp_path):
    result = cli(*arguments, "--variants", "Std", *(() if arguments[0] == "search" else ("--seeds", "1")))
    assert (result.status, result.err) == (0, "")
    assert [path.name for path in (tmp_path / "out").iterdir()] == [name]
    assert {one["purpose"] for one in records(tmp_path / "out" / name)} == {purpose}
    assert ("no evidence" in result.out) == (purpose == "quick")


# Every experiment, and its page


def test_digits_without_any_data(cli, undrawn):
    result = cli("run", "digits", "--quick", "--set", "epochs=2", "--seeds", "1", "--workers", "1", "--out", "out")
    assert (result.status, result.err) == (0, "")
    assert [row["variant"] for row in rows(result.out)] == ["Std", "Ort", "RR"]
    assert {one["config"]["shipped"] for one in records("out")} == {True}
    report = cli("report", "out")
    assert (report.status, report.err) == (0, "")
    page = (Store("out").folder / "report.md").read_text()
    assert f"# {experiment('digits').title} (quick runs: no evidence)" in page


def test_peaks_and_its_page(cli):
    result = cli(*PEAKS, "--set", "nets=two,norm", "--variants", "RR", "--seeds", "1")
    assert (result.status, result.err) == (0, "")
    assert len(records("out")) == 2
    assert cli("report", "out").status == 0
    text = (Store("out").folder / "report.md").read_text()
    assert experiment("peaks").title in text
    for figure in ("784-128-2", "one layer with batch norm and ReLU"):
        assert figure in text


def test_information_and_its_stages(cli):
    names = ("Std", "Pre", "lRR", "Drop")
    result = cli("run", *INFORMATION, "--seeds", "1", "--variants", ",".join(names), "--coefficient", "Pre=1")
    assert (result.status, result.err) == (0, "")
    found = {(one["variant"], one["stage"]) for one in records("out")}
    assert found == {(v, s) for v in names for s in ("A", "AA", "AB")} | {("Std", "B")}
    parents = {one["id"]: one for one in records("out")}
    for one in records("out"):
        parent = parents.get(one["parent"])
        assert (parent is not None) is (one["stage"] in ("AA", "AB"))
        if parent:
            assert (parent["stage"], parent["variant"], parent["seed"]) == ("A", one["variant"], one["seed"])
        assert one["task"] == ("B" if one["stage"] in ("AB", "B") else "A")
        assert one["regularised"] is (one["stage"] == "A")


def write_task(path):
    patterns = np.array([[number >> bit & 1 for bit in range(12)] for number in range(4096)], dtype=np.uint8)
    savemat(path, {"F": patterns, "y": (patterns.sum(1) > 5).astype(np.uint8)[None]})


def test_a_file_chooses_the_task(cli, tmp_path):
    """Labels that the number of ones decides: the baseline gets them all, so this file it was."""
    write_task(tmp_path / "mine.mat")
    result = cli("run", *INFORMATION, *ONE, "--data", tmp_path / "mine.mat")
    assert (result.status, result.err) == (0, "")
    assert {one["config"]["source"] for one in records("out")} == {"var_u"}
    assert {row["bit_count"] for row in rows(result.out)} == {"1.000"}
    again = cli("run", *INFORMATION, *ONE)
    assert again.err == ""  # the task from its rule is another one
    assert {one["config"]["source"] for one in records("out")} == {"var_u", "sphere"}


# Sweep


def test_sweep_over_a_setting(cli):
    result = cli("sweep", *PEAKS[1:], "--over", "lr=1e-4,1e-3", "--variants", "Std,RR", "--seeds", "1")
    assert (result.status, result.err) == (0, "")
    found = {(one["variant"], one["config"]["lr"]) for one in records("out")}
    assert found == {(v, lr) for v in ("Std", "RR") for lr in (1e-4, 1e-3)}
    assert len({row["settings"] for row in rows(result.out)}) == 2


def test_sweep_over_words(cli):
    assert cli("sweep", *PEAKS[1:], "--over", "nets=linear,norm", *ONE).status == 0
    assert sorted(one["config"]["nets"] for one in records("out")) == [["linear"], ["norm"]]


def test_sweep_over_weight(cli):
    """The coefficient of every regulariser; what has none is run once, as it is."""
    result = cli("sweep", *PEAKS[1:], "--over", "weight=1e-7,1e-6", "--variants", "Std,RR,Ort", "--seeds", "1")
    assert (result.status, result.err) == (0, "")
    found = sorted((one["variant"], one["coefficient"] or 0) for one in records("out"))
    assert found == [("Ort", 1e-7), ("Ort", 1e-6), ("RR", 1e-7), ("RR", 1e-6), ("Std", 0)]
    assert [(row["variant"], row["coefficient"]) for row in rows(result.out)] == [
        ("Std", ""), ("RR", "1e-07"), ("RR", "1e-06"), ("Ort", "1e-07"), ("Ort", "1e-06"),
    ]  # fmt: skip


# Search


@pytest.fixture
def search(monkeypatch):
    """Two settings for each variant, one seed."""
    small = Search(lrs={"adam": (1e-3, 1e-2)}, coefficients={"RR": (0.1,)}, stages=("AA", "AB"), seeds=1)
    monkeypatch.setattr(type(experiment("information")), "search", small)
    return small


def test_search_and_tuned(cli, search, undrawn):
    result = cli("search", *INFORMATION, "--variants", "Std,RR")
    assert (result.status, result.err) == (0, "")
    tuned = json.loads((Store("out").folder / "tuned.json").read_text())
    assert (tuned["experiment"], tuned["metric"], tuned["seeds"]) == ("information", "valid_accuracy", 1)
    assert tuned["config"]["valid"] == search.valid
    assert {name: len(found["tried"]) for name, found in tuned["variants"].items()} == {"Std": 2, "RR": 2}
    assert {one["seed"] for one in records("out")} == {1000}
    steps = {}
    for one in records("out"):
        if one["stage"] != "B":
            steps[one["variant"]] = steps.get(one["variant"], 0) + one["cost"]["steps"]
    assert steps["Std"] == steps["RR"]
    for name, found in tuned["variants"].items():
        scores = {}
        for one in records("out"):
            if one["variant"] == name and one["stage"] in ("AA", "AB"):
                scores.setdefault((one["tuned"]["lr"], one["coefficient"]), []).append(one["metrics"]["valid_accuracy"])
        best = max(mean(values) for values in scores.values())
        assert mean(scores[found["lr"], found.get("coefficient")]) == best == pytest.approx(found["score"])
        assert f"{name}: lr {found['lr']:.3g}" in result.out
    assert result.out.splitlines()[-1] == "out/tuned.json"

    again = cli("search", *INFORMATION, "--variants", "Std,RR")
    assert again.err == "14 of 14 stages are there already\n"
    assert again.out == result.out

    used = cli("run", *INFORMATION[:-1], "tuned", "--seeds", "1", "--variants", "Std,RR", "--tuned", "out/tuned.json")
    assert (used.status, used.err) == (0, "")
    said = {(row["variant"], row["tuned"]) for row in rows(used.out)}
    assert said == {(name, f"lr {found['lr']:.3g}") for name, found in tuned["variants"].items()}
    for one in records("tuned"):
        chosen = tuned["variants"][one["variant"]]
        assert one["tuned"] == {key: chosen[key] for key in ("lr", "coefficient") if key in chosen}
        assert one["coefficient"] == chosen.get("coefficient")
        assert one["config"]["lr"] == 3e-3
        assert one["config"]["valid"] == 0
    report = cli("report", "tuned")
    assert (report.status, report.err) == (0, "")
    text = (Store("tuned").folder / "report.md").read_text()
    assert all(claim.text in text for claim in experiment("information").claims)


@pytest.mark.parametrize("first", ["usual", "tuned"])
def test_what_a_search_chose_may_be_what_is_usual(cli, tuned, first, tmp_path, undrawn):
    """Then nothing is trained twice, and the page shows the runs as both."""
    content = json.loads((tmp_path / "tuned.json").read_text())
    usual = experiment("information").Config()
    weight = experiment("information").coefficient(usual, "RR")
    content["variants"] = {"RR": {"lr": usual.lr, "coefficient": weight}, "Std": {"lr": 0.5}}
    (tmp_path / "tuned.json").write_text(json.dumps(content))
    more = {"usual": (), "tuned": ("--tuned", tuned)}
    arguments = ("run", *INFORMATION, "--seeds", "1", "--variants", "Std,RR")
    assert cli(*arguments, *more.pop(first)).err == ""
    (last,) = more.values()
    for _ in range(2):
        again = cli(*arguments, *last)
        assert again.status == 0
    found = [one for one in records("out") if one["variant"] == "RR"]
    assert len(found) == 3
    for one in found:
        (also,) = one["also"]
        choices = [one["tuned"], also["tuned"]]
        assert choices[first == "tuned"] == {}
        assert choices[first == "usual"] == {"lr": usual.lr, "coefficient": weight}
    assert not any("also" in one for one in records("out") if one["variant"] == "Std")
    assert cli("report", "out").status == 0
    page = (tmp_path / "out" / "report.md").read_text()
    assert f"RR ({weight:g}) against Std: " in page
    assert f"RR ({weight:g}, lr = {usual.lr:g}) against Std (lr = 0.5): " in page
    assert page.count("racecar run information") >= 2


def test_search_help_names_its_folder(cli, search):
    """The one that it writes to."""
    said = re.search(r"(out/\S+) without it", " ".join(cli("search", "--help").out.split()))[1]
    arguments = [one for one in INFORMATION if one not in ("--out", "out")]
    assert cli("search", *arguments, "--variants", "RR").status == 0
    assert Path(said.replace("NAME", "information"), "tuned.json").exists()


def test_search_says_which_task_it_was(cli, search, tmp_path):
    write_task(tmp_path / "mine.mat")
    assert cli("search", *INFORMATION, "--variants", "RR", "--data", tmp_path / "mine.mat").status == 0
    tuned = json.loads((tmp_path / "out" / "tuned.json").read_text())
    assert tuned["config"]["source"] == "var_u"
    assert tuned["config"] == {**records("out")[0]["config"], "lr": 3e-3}


def test_search_with_other_seeds(cli, search):
    """More or fewer than the experiment says, and the file says so."""
    assert cli("search", *INFORMATION, "--variants", "RR", "--seeds", "2").status == 0
    assert {one["seed"] for one in records("out")} == {search.first_seed, search.first_seed + 1}
    assert json.loads((Store("out").folder / "tuned.json").read_text())["seeds"] == 2 != search.seeds


def test_search_holds_out_what_the_user_says(cli, search):
    assert cli("search", *INFORMATION, "--variants", "RR", "--set", "valid=0.25").status == 0
    assert {one["config"]["valid"] for one in records("out")} == {0.25}


@pytest.fixture
def tuned(tmp_path):
    """A file as a search leaves it."""
    path = tmp_path / "tuned.json"
    config = replace(experiment("information").Config(), valid=0.1).to_dict()
    content = {"experiment": "information", "config": config, "variants": {"RR": {"lr": 0.5, "coefficient": 2.0}}}
    path.write_text(json.dumps(content))
    return str(path)


@pytest.mark.parametrize(
    "arguments, words",
    [
        ((*PEAKS, "--variants", "RR"), "information"),  # another experiment's
        (("run", *INFORMATION, "--variants", "RR", "--set", "optimiser=sgd"), "optimiser"),  # another optimiser's
        (("run", *INFORMATION, "--variants", "RR,Std"), "Std"),  # a variant that was not searched
        (("run", *INFORMATION, "--variants", "RR", "--set", "lr=1e-3"), "lr"),  # the user's own, or the search's?
        (("sweep", *INFORMATION, "--variants", "RR", "--over", "lr=1e-3,1e-2"), "lr"),
    ],
    ids=["experiment", "optimiser", "variant", "lr", "sweep"],
)
def test_what_a_search_chose_is_not_mixed_up(refused, tuned, arguments, words, tmp_path):
    assert words in refused(*arguments, "--tuned", tuned)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"variants": []}', '{"variants": {"RR": {"lr": "x"}}}', "\xff"])
def test_tuned_files_that_are_none(refused, tmp_path, content):
    (tmp_path / "other.json").write_text(content, encoding="latin-1")
    assert "other.json" in refused(*PEAKS, "--tuned", "other.json")


@pytest.mark.parametrize("name", ["information/adam-RR1", "few-labels/none", "mnist/batch"])
def test_one_search_of_several_in_a_file(name):
    """As if it had a file of its own; a name that is not there is answered with those that are."""
    folder, _, which = name.partition("/")
    file = Path(__file__).parents[3] / "results" / folder / "tuned.jsonl"
    (line,) = [one for one in map(json.loads, file.read_text().splitlines()) if one["name"] == which]
    one, variants = experiment(line["experiment"]), list(line["variants"])
    config = replace(one.Config(), optimiser=line["config"]["optimiser"])
    found = tuned_of(Path(f"{file}#{which}"), one, config, variants, [])
    assert {name: own["lr"] for name, own in found.items()} == {name: line["variants"][name]["lr"] for name in variants}
    with pytest.raises(ValueError, match=f"no search 'other', but .*{which}"):
        tuned_of(Path(f"{file}#other"), one, config, variants, [])


# One line, and exit status 2


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
    ((*PEAKS, "--set", "epochs=3.5"), "epochs must be of type int, not '3.5'"),
    ((*PEAKS, "--set", "epochs"), "write name=value"),
    ((*PEAKS, "--set", "lr=-1"), "lr must be greater than 0"),
    ((*PEAKS, "--set", "lr=inf"), "lr"),
    ((*PEAKS, "--set", "strength=nan"), "strength"),
    ((*PEAKS, "--set", "nets="), "nets"),
    ((*PEAKS, "--coefficient", "RR"), "write VARIANT=a,b,c"),
    ((*PEAKS, "--coefficient", "Std=1"), "Std has no coefficient"),
    ((*PEAKS, "--coefficient", "XX=1"), "no variant 'XX'"),
    ((*PEAKS, "--coefficient", "RR=many"), "must be of type float, not 'many'"),
    ((*PEAKS, "--coefficient", "RR=nan"), "RR"),
    ((*PEAKS, "--coefficient", "RR=-1"), "RR"),
    ((*PEAKS, "--variants", "Std", "--coefficient", "RR=1"), "RR"),  # which is not run
    ((*PEAKS, "--engine", "cloud"), "here, vmap, ray"),
    ((*PEAKS, "--device", "gpu"), "gpu"),
    ((*PEAKS, "--engine", "vmap", "--compile"), "--compile"),
    ((*PEAKS, "--engine", "vmap", "--tensorboard"), "--tensorboard"),
    ((*PEAKS, "--address", "auto"), "--engine ray"),
    ((*PEAKS, "--engine", "ray", "--device", "cuda:1"), "use --device cuda"),
    (("search", *INFORMATION, "--set", "valid=0"), "valid"),
    ((*PEAKS, "--seeds", "-1"), "seeds"),
    ((*PEAKS, "--seeds", "many"), "--seeds"),
    ((*PEAKS, "--seeds", "99999999999999999999"), "--seeds 99999999999999999999: at most 100,000 at once"),
    (("sweep", *PEAKS[1:], "--over", "lr=1,2", "--seeds", "100001"), "at most 100,000"),
    (("search", *INFORMATION, "--variants", "RR", "--seeds", "99999999999999"), "at most 100,000"),
    ((*PEAKS, "--workers", "-1"), "workers"),
    ((*PEAKS, "--data", "nowhere"), "nowhere"),
    ((*PEAKS, "--tuned", "nowhere.json"), "nowhere.json"),
    ((*PEAKS, "--nothing"), "--nothing"),
    (("run", *INFORMATION, *ONE, "--data", "var_u.mat"), "var_u.mat"),  # mistyped: not the other task instead
    (("run", *INFORMATION, *ONE, "--set", "source=var_u"), "var_u.mat"),
    (("run", *INFORMATION, *ONE, "--set", "finetune=0"), "finetune"),
    (("run", "digits", "--out", "out"), "racecar data fetch mnist"),
    (("sweep", *PEAKS[1:]), "over"),
    (("sweep", *PEAKS[1:], "--over", "lr"), "write FIELD=a,b,c"),
    (("sweep", *PEAKS[1:], "--over", "lr="), "write FIELD=a,b,c"),
    (("sweep", *PEAKS[1:], "--over", "lrs=1,2"), "did you mean 'lr'?"),
    (("sweep", *PEAKS[1:], "--over", "lr=1,x"), "lr must be of type float"),
    (("sweep", *PEAKS[1:], "--over", "weight=1,x"), "weight must be of type float"),
    (("sweep", *PEAKS[1:], "--over", "weight=1e-3,1e-2", "--variants", "Std"), "weight"),  # it has none
]


@pytest.mark.parametrize("arguments, words", REFUSED, ids=[" ".join(a[-2:]) for a, _ in REFUSED])
def test_refused(refused, search, arguments, words, tmp_path):
    """Before anything is trained or written."""
    assert words in refused(*arguments)
    assert not (tmp_path / "out").exists()


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


def test_no_cuda(refused, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "--device cpu" in refused(*PEAKS, "--device", "cuda:1")


def test_out_is_a_file(refused, tmp_path):
    (tmp_path / "out").write_text("")
    assert "out" in refused(*PEAKS)


def test_errors_of_ours_are_not_called_the_users(monkeypatch):
    """A KeyError is a bug and shows where."""
    monkeypatch.setattr(type(experiment("peaks")), "configs", lambda self, config, folder: {}["x"])
    with pytest.raises(KeyError):
        app.run([*PEAKS])
