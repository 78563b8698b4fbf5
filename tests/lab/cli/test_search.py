"""``racecar search``, and runs with what it chose."""

import json
from dataclasses import replace
from pathlib import Path
from statistics import mean

import pytest

from racecar_lab.cli.tuned import read_tuned
from racecar_lab.experiments import experiment
from racecar_lab.running.results import Store
from tests.lab.cli.commands import INFORMATION, PEAKS, records, rows
from tests.lab.experiments.smoke_cases import TINY
from tests.lab.smoke_data import small

pytestmark = pytest.mark.usefixtures("no_data", "measured_once")


def test_search_and_tuned(cli, search, undrawn):
    result = cli("search", *INFORMATION, "--variants", "Std,RR")
    assert (result.status, result.err) == (0, "")
    tuned = json.loads((Store("out").folder / "tuned.json").read_text())
    assert (tuned["experiment"], tuned["metric"], tuned["seeds"]) == ("information", "valid_accuracy", 1)
    assert tuned["config"]["valid"] == search.valid
    assert {name: len(found["tried"]) for name, found in tuned["variants"].items()} == {"Std": 2, "RR": 2}
    assert {one["seed"] for one in records("out")} == {1000}
    assert {one["stage"] for one in records("out")} == {"A", "AA", "AB"}  # and not B, by which it does not judge
    steps = {}
    for one in records("out"):
        steps[one["variant"]] = steps.get(one["variant"], 0) + one["cost"]["steps"]
    assert steps["Std"] == steps["RR"]
    for name, found in tuned["variants"].items():
        scores = {}
        for one in records("out"):
            if one["variant"] == name and one["stage"] in ("AA", "AB"):
                scores.setdefault((one["tuned"]["lr"], one["weight"]), []).append(one["metrics"]["valid_accuracy"])
        best = max(mean(values) for values in scores.values())
        assert mean(scores[found["lr"], found.get("weight")]) == best == pytest.approx(found["score"])
        assert f"{name}: lr {found['lr']:.3g}" in result.out
    assert result.out.splitlines()[-1] == "out/tuned.json"

    again = cli("search", *INFORMATION, "--variants", "Std,RR")
    assert again.err == "12 of 12 stages are there already\n"
    assert again.out == result.out

    used = cli("run", *INFORMATION[:-1], "tuned", "--seeds", "1", "--variants", "Std,RR", "--tuned", "out/tuned.json")
    assert (used.status, used.err) == (0, "")
    said = {(row["variant"], row["tuned"]) for row in rows(used.out)}
    assert said == {(name, f"lr {found['lr']:.3g}") for name, found in tuned["variants"].items()}
    for one in records("tuned"):
        chosen = tuned["variants"][one["variant"]]
        assert one["tuned"] == {key: chosen[key] for key in ("lr", "weight") if key in chosen}
        assert one["weight"] == chosen.get("weight")
        assert one["config"]["lr"] == 3e-3
        assert one["config"]["valid"] == 0
    report = cli("report", "tuned")
    assert (report.status, report.err) == (0, "")
    text = (Store("tuned").folder / "report.md").read_text()
    assert all(claim.text in text for claim in experiment("information").claims)


def test_search_of_more_fields(cli, refused, search, monkeypatch):
    """Chosen, said, used by a run, and not to be given beside it."""
    more = replace(search, lrs={"adam": (1e-3,)}, fields={"weight_decay": (0.1, 0.7)})
    monkeypatch.setattr(type(experiment("information")), "search", more)
    result = cli("search", *INFORMATION, "--variants", "RR")
    found = json.loads((Store("out").folder / "tuned.json").read_text())["variants"]["RR"]
    assert sorted(row["weight_decay"] for row in found["tried"]) == [0.1, 0.7]
    assert f"RR: lr 0.001, weight_decay {found['weight_decay']}, weight 0.1, " in result.out
    given = (*INFORMATION[:-1], "tuned", "--seeds", "1", "--variants", "RR")
    used = cli("run", *given, "--tuned", "out/tuned.json")
    assert {row["tuned"] for row in rows(used.out)} == {f"lr 0.001, weight_decay {found['weight_decay']}"}
    for one in records("tuned"):
        assert one["tuned"] == {"lr": 1e-3, "weight_decay": found["weight_decay"], "weight": 0.1}
        assert one["config"]["weight_decay"] == 0
    own = ("--set", "weight_decay=0.1")
    assert "weight_decay is given" in refused("run", *given, "--tuned", "out/tuned.json", *own)
    assert "the search chooses it" in refused("search", *INFORMATION, *own)


@pytest.mark.soak
def test_a_search_after_another(cli, refused, search, tuned, monkeypatch, tmp_path):
    """It tries its own fields alone, with what the first one chose, and says all of it. Learning rates and weights
    are given to the first one."""
    assert "chooses all by itself" in refused("search", *INFORMATION, "--variants", "RR", "--tuned", tuned)
    sets = [f"--set={name}={','.join(map(str, one)) if isinstance(one, tuple) else one}" for name, one in TINY.items()]
    given = (
        *sets,
        "--variants",
        "RR",
        "--seeds",
        "1",
        "--workers",
        "1",
        "--data",
        str(small(monkeypatch, tmp_path)),
        "--other-data",
    )
    many = ("--lr", "0.002,0.004,0.002", "--weight", "RR=0.5,1", "--weight", "lRR=1,2")
    assert "lRR is not run" in refused("search", "smoke", *given, *many)
    few = ("--lr", "0.002", "--weight", "RR=0.5,1")  # fewer than lRR has by itself, which is not run
    assert cli("search", "smoke", *given, *few, "--out", "first").status == 0
    first = json.loads((tmp_path / "first" / "tuned.json").read_text())["variants"]["RR"]
    assert {(one["lr"], one["weight"]) for one in first["tried"]} == {(0.002, 0.5), (0.002, 1)}

    own = (
        "search",
        "smoke-autoencoder",
        *given,
        "--set",
        "autoencoder_epochs=1",
        "--set",
        "pictures=8",
        "--out",
        "out",
    )
    assert "racecar search smoke`, and give its file by --tuned" in refused(*own)
    own = (*own, "--tuned", "first/tuned.json")
    assert "--weight" in refused(*own, "--weight", "RR=1")
    assert "--lr" in refused(*own, "--lr", "1")
    assert "Std" in refused(*own, "--variants", "RR,Std")
    assert cli(*own).status == 0
    found = json.loads((tmp_path / "out" / "tuned.json").read_text())["variants"]["RR"]["stages"]
    rates = experiment("smoke-autoencoder").search.fields["autoencoder_lr"]
    assert set(found) == {f"AB{i}-{fill}" for i in (1, 2, 3) for fill in ("decoder", "both")}
    for stage, one in found.items():  # each has its own best
        tried = {(row["lr"], row["weight"], row["autoencoder_lr"]): row["score"] for row in one["tried"]}
        assert set(tried) == {(first["lr"], first["weight"], rate) for rate in rates}
        errors = {
            run["tuned"]["autoencoder_lr"]: run["metrics"]["valid_relative"]
            for run in records("out")
            if run["stage"] == stage
        }
        assert one["autoencoder_lr"] == min(errors, key=errors.get)
        assert one["score"] == errors[one["autoencoder_lr"]]
        assert (one["lr"], one["weight"]) == (first["lr"], first["weight"])
    assert [one["stage"] for one in records("out") if one["experiment"] == "smoke"] == ["A"]
    own = ("run", "smoke-autoencoder", *own[2:-3], "runs", "--tuned", "out/tuned.json")
    assert cli(*own).status == 0
    done = {one["stage"]: one["tuned"] for one in records("runs")}
    assert {stage: tuned.get("autoencoder_lr") for stage, tuned in done.items()} == {
        "A": None, **{stage: one["autoencoder_lr"] for stage, one in found.items()}
    }  # fmt: skip
    content = json.loads((tmp_path / "out" / "tuned.json").read_text())
    del content["variants"]["RR"]["stages"]["AB2-both"]
    (tmp_path / "out" / "tuned.json").write_text(json.dumps(content))
    assert "nothing for stage AB2-both of RR" in refused(*own)


@pytest.mark.parametrize("rates", ["0", "-1", "inf", "nan", "a", "", ","])
def test_learning_rates_that_are_none(refused, rates):
    assert "--lr" in refused("search", *INFORMATION, "--lr", f"0.1,{rates}")


@pytest.mark.parametrize("first", [pytest.param("usual", marks=pytest.mark.soak), "tuned"])
def test_what_a_search_chose_may_be_what_is_usual(cli, tuned, first, tmp_path, undrawn):
    """Then nothing is trained twice, and the page shows the runs as both."""
    content = json.loads((tmp_path / "tuned.json").read_text())
    usual = experiment("information").Config()
    weight = experiment("information").weight(usual, "RR")
    content["variants"] = {"RR": {"lr": usual.lr, "weight": weight}, "Std": {"lr": 0.5}}
    (tmp_path / "tuned.json").write_text(json.dumps(content))
    more = {"usual": (), "tuned": ("--tuned", tuned)}
    arguments = ("run", *INFORMATION, "--seeds", "1", "--variants", "Std,RR")
    assert cli(*arguments, *more.pop(first)).err == ""
    (last,) = more.values()
    for _ in range(2):
        again = cli(*arguments, *last)
        assert again.status == 0
    found = [one for one in records("out") if one["variant"] == "RR"]
    by_id = {one["id"]: [same["tuned"] for same in found if same["id"] == one["id"]] for one in found}
    assert len(by_id) == 3
    for choices in by_id.values():
        assert sorted(choices, key=len) == [{}, {"lr": usual.lr, "weight": weight}]
    plain = [one["id"] for one in records("out") if one["variant"] == "Std"]
    assert len(plain) == len(set(plain))
    assert cli("report", "out").status == 0
    page = (tmp_path / "out" / "report.md").read_text()
    assert f"RR ({weight:g}) against Std: " in page
    assert f"RR ({weight:g}, lr = {usual.lr:g}) against Std (lr = 0.5): " in page
    assert page.count("racecar run information") >= 2


@pytest.fixture
def tuned(tmp_path):
    """A file as a search leaves it."""
    path = tmp_path / "tuned.json"
    config = replace(experiment("information").Config(), valid=0.1).to_dict()
    content = {"experiment": "information", "config": config, "variants": {"RR": {"lr": 0.5, "weight": 2.0}}}
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
    found = read_tuned(Path(f"{file}#{which}"), one, config, variants, [])
    assert {name: own["lr"] for name, own in found.items()} == {name: line["variants"][name]["lr"] for name in variants}
    with pytest.raises(ValueError, match=f"no search 'other', but .*{which}"):
        read_tuned(Path(f"{file}#other"), one, config, variants, [])
