"""racecar inspect: tables and figures are complete and right, and are written all or none."""

import json
import re
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import racecar
from racecar.cli.inspect.findings import Chapter, write_report
from racecar.cli.inspect.looked_at import prepare
from racecar.cli.target.inputs import Input
from racecar.cli.target.target import Target
from racecar.inspect import calibrate, invertibility


@pytest.fixture
def pictures(tmp_path) -> Path:
    """Three classes of four coloured noise pictures, larger than the input."""
    noise = np.random.default_rng(0)
    for name in ("a", "b", "c"):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for i in range(4):
            pixels = noise.integers(0, 256, (20, 24, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "pictures" / name / f"{i}.png")
    return tmp_path / "pictures"


def check_files(out: Path) -> tuple[str, dict]:
    """All files are what their names say, and the page shows every figure; returns page and numbers."""
    page, record = (out / "report.md").read_text(), json.loads((out / "report.json").read_text())
    drawn = {file.stem for file in out.iterdir()} - {"report"}
    assert set(re.findall(r"!\[.*\]\((.*)\.png\)", page)) == drawn
    for name in drawn:
        assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (out / f"{name}.svg").read_text()
    assert not [file for file in out.parent.iterdir() if file.name.startswith(".")]
    return page, record


def test_pictures_with_classes(cli, pictures, undrawn):
    result = cli("inspect", "nets:wide", "--input", "1,3,16,16", "--data", pictures, "--out", "out/here", "--k", 5)
    assert result.status == 0
    assert result.err == ""
    out = Path("out/here")
    page, record = check_files(out)
    files = sorted(map(str, out.iterdir()))
    (*findings,) = (line for line in result.out.splitlines() if line not in files)
    assert len(findings) + len(files) == len(result.out.splitlines())
    assert findings[0] == "Plan: 2 of 2 layers can be constrained."
    error = record["invertibility"]["layers"][-1]["input"]
    assert findings[1] == f"The reverse pass: The input comes back through 4 with a relative error of {error:.3g}."
    assert findings[2].startswith("What the layers give away: From d3, the output of 4, the reverse pass gives back ")
    assert record["command"].startswith("racecar inspect nets:wide --input 1,3,16,16 --data ")
    assert (record["racecar"], record["torch"]) == (racecar.__version__, torch.__version__)
    assert abs(datetime.now(UTC) - datetime.fromisoformat(record["made"])).total_seconds() < 600
    assert record["weights"] == "as nets:wide makes them, with seed 0"
    assert "12 pictures of 3 classes" in page
    assert set(record) > {"plan", "operator", "similarity", "invertibility", "leakage", "information_plane"}
    import nets

    torch.manual_seed(0)
    kernel = nets.wide()[0].weight.flatten(1)
    values = record["singular_vectors_0"]["values"]
    torch.testing.assert_close(torch.tensor(values), torch.linalg.svdvals(kernel.double()).float())
    assert "singular_vectors_4" not in record
    by_data = re.search(r"by data\n.*\n((?: +\d.*%\n)+)", page)[1]
    shares = [float(line.split()[2].rstrip("%")) for line in by_data.splitlines()]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] == pytest.approx(100 * max(record["singular_vectors_0"]["carried"]), abs=0.01)
    assert len(record["operator"]["values"]) == 5
    assert [row["layer"] for row in record["information_plane"]["rows"]] == ["0", "4", "output"]
    assert [row["layer"] for row in record["plasticity"]["layers"]] == ["0", "4"]
    assert record["information_plane"]["h_y"] == pytest.approx(np.log2(3))
    assert "rebuilt.png" in page


def test_the_reverse_pass_is_measured_on_the_samples(cli, tmp_path, undrawn):
    x = torch.rand(6, 3, 16, 16)
    np.save(tmp_path / "x.npy", x.numpy())
    for statistics in ("batch", "calibrated"):
        chosen = [] if statistics == "calibrated" else ["--statistics", statistics]
        arguments = ["--data", "x.npy", "--out", statistics, *chosen, "--k", 2]
        assert cli("inspect", "nets:wide", "--input", "1,3,16,16", *arguments).status == 0
        import nets

        torch.manual_seed(0)
        model = nets.wide()
        known = calibrate(model, [x]) if statistics == "calibrated" else statistics
        truth = invertibility(model, x, statistics=known)
        page = Path(statistics, "report.md").read_text()
        assert page.count("Batch norm has ") == 1
        assert ("calibrated on these samples" in page) == (statistics == "calibrated")
        errors = [
            one["way"] for one in json.loads(Path(statistics, "report.json").read_text())["invertibility"]["layers"]
        ]
        assert errors == pytest.approx([depth.way for depth in truth])


def test_flattened_pictures_are_shown_as_pictures(cli, tmp_path, undrawn):
    np.savez(tmp_path / "x.npz", x=np.random.default_rng(0).random((9, 16, 16)), y=np.arange(9) % 3)
    assert cli("inspect", "nets:flat256", "--input", "1,256", "--data", "x.npz", "--out", "out").status == 0
    _, record = check_files(Path("out"))
    assert record["singular_vectors_0"]["shape"] == [1, 16, 16]
    assert len(record["similarity"]["ssim"]["vector_mean"]) == 9
    assert Path("out/rebuilt.png").exists()
    assert set(record["information_plane"]["sweep"]) > {"2", "30"}


def test_noise_says_that_it_is_noise(cli, undrawn):
    assert cli("inspect", "nets:flat", "--input", "1,64", "--out", "out", "--k", 2).status == 0
    page, record = check_files(Path("out"))
    assert "noise, 16 samples: what is seen of noise says little" in page
    assert "Left out: it needs labels" in page
    assert not Path("out/rebuilt.png").exists()
    assert cli("inspect", "nets:flat", "--input", "1,64", "--out", "out", "--k", 2).status == 0
    again = json.loads(Path("out/report.json").read_text())
    assert {**again, "made": record["made"]} == record


def test_tokens_and_several_inputs(cli, request):
    """The figures of the first are drawn, too."""
    assert cli("inspect", "nets:tokens", "--input", "1,6:10", "--out", "a", "--k", 2).status == 0
    request.getfixturevalue("undrawn")
    assert cli("inspect", "nets:Pair", "--input", "1,3;1,4", "--out", "b", "--k", 2).status == 0
    check_files(Path("a"))
    check_files(Path("b"))


def test_layers(cli, undrawn):
    result = cli("inspect", "nets:wide", "--input", "2,3,16,16", "--out", "out", "--layers", "4, 0", "--k", 2)
    assert result.status == 0
    assert {f"singular_vectors_{name}_spectrum.svg" for name in "04"} <= {file.name for file in Path("out").iterdir()}


@pytest.mark.parametrize("side, limit, count", [(4, None, 64), (4, 3, 3), (90, None, 32), (256, None, 8)])
def test_as_many_samples_as_the_memory_holds(tmp_path, side, limit, count):
    np.save(tmp_path / "x.npy", np.zeros((70, 3, side, side), np.uint8))
    target = Target("net", torch.nn.Conv2d(3, 1, 3), (Input((1, 3, side, side)),))
    assert len(prepare(target, tmp_path / "x.npy", limit, "", 0).inputs) == count


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--layers", "fc*"], "--layers: 'fc*' matches no layer; the layers are: '0', '4'"),
        (["--data", "nowhere"], "there is no folder or file nowhere"),
        (["--out", "nets.py"], "--out nets.py: nets.py is not a folder"),
        (["--out", "nets.py/deeper"], "nets.py is not a folder"),
        (["--statistics", "all"], "--statistics must be one of calibrated, batch, running"),
        (["--input", "1,3,9,9"], "does not accept"),
        (["--input", "1,3"], "does not accept"),
        (["--k", "0"], "--k"),
        (["--limit", "0"], "--limit"),
        (["--lpips", "nets.py"], "nets.py"),
        (["--lpips", "nowhere.npz"], "nowhere.npz"),
        (["--weights", "nets.py"], "nets.py cannot be read"),
    ],
)
def test_user_errors_are_one_line_and_nothing_is_written(refused, tmp_path, arguments, words):
    assert words in refused("inspect", "nets:wide", "--input", "1,3,16,16", *arguments)
    assert {file.name for file in tmp_path.iterdir()} <= {"nets.py", "__pycache__"}


def test_data_for_two_inputs_are_refused(refused, pictures):
    line = refused("inspect", "nets:Pair", "--input", "1,3;1,4", "--data", "pictures")
    assert "--data is for models with one input; nets:Pair takes 2" in line


def test_numbers_that_json_does_not_know(tmp_path):
    record = {"psnr": [float("inf"), 1.5], "loss": float("nan")}
    write_report(tmp_path / "out", "title", {}, [Chapter("one", "One", record=record)])
    assert json.loads((tmp_path / "out" / "report.json").read_text()) == {
        "one": {"psnr": ["inf", 1.5], "loss": "nan"},
    }


def test_a_broken_end_leaves_nothing_behind(cli, undrawn, monkeypatch, tmp_path):
    def full(figure, path):
        raise OSError("no space left")

    monkeypatch.setattr("racecar.inspect.style.save", full)
    result = cli("inspect", "nets:flat", "--input", "1,64", "--out", "out", "--k", 2)
    assert (result.status, result.err) == (2, "racecar: no space left\n")
    assert {file.name for file in tmp_path.iterdir()} <= {"nets.py", "__pycache__"}


def test_the_weights_file_is_named(cli, undrawn, tmp_path):
    torch.save(torch.nn.Sequential(torch.nn.Linear(64, 9), torch.nn.Tanh(), torch.nn.Linear(9, 3)).state_dict(), "w.pt")
    assert cli("inspect", "nets:flat", "--input", "1,64", "--out", "out", "--k", 2, "--weights", "w.pt").status == 0
    page, record = check_files(Path("out"))
    assert record["weights"] == "w.pt"
    assert "- weights: w.pt\n" in page


def test_out_of_memory_says_where(refused, monkeypatch):
    def full(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("racecar.inspect.invertibility", full)
    line = refused("inspect", "nets:flat", "--input", "1,64", "--out", "out", "--k", 2)
    assert line == "racecar: out of memory at reverse pass: try a smaller --limit or --input\n"


def test_what_cannot_be_looked_at_is_left_out_and_said(cli, monkeypatch, undrawn):
    def refuse(*_, **__):
        raise ValueError("infinite values")

    monkeypatch.setattr("racecar.inspect.invertibility", refuse)
    result = cli("inspect", "nets:flat", "--input", "1,64", "--out", "out", "--k", 2)
    assert result.status == 0
    assert result.err == "note: reverse pass: left out, infinite values\n"
    page, _ = check_files(Path("out"))
    assert "## Reverse pass\n\nLeft out: infinite values." in page
    assert "## Plan" in page


@pytest.mark.soak
def test_fifty_layers_take_seconds(cli, undrawn):
    start = time.process_time()
    assert cli("inspect", "nets:deep", "--input", "1,3,16,16", "--out", "out", "--k", 4).status == 0
    assert time.process_time() - start < 30
    _, record = check_files(Path("out"))
    assert len(record["invertibility"]["layers"]) == 50
