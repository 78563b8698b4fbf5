"""racecar bench: the table, the record, and what is refused."""

import json

import pytest

from racecar.cli import bench

QUICK = ("--device", "cpu", "--rounds", "2", "--fractions", "1,1/2")


def test_a_target(cli, tmp_path):
    result = cli("bench", *QUICK, "--models", "nets:conv", "--input", "8,3,8,8", "--out", "deep/bench.json")
    assert result.status == 0
    lines = result.out.splitlines()
    assert lines[0].split()[:3] == ["net", "step", "ms"]
    assert lines[2].startswith("nets:conv, 8×3×8×8  plain")
    assert "racecar 1/2" in result.out
    assert "without an optimiser" in lines[-1]
    made = json.loads((tmp_path / "deep/bench.json").read_text())
    assert made["command"].startswith("racecar bench --device cpu --rounds 2")
    assert made["settings"]["precision"] == "float32"
    assert made["wall_s"] > 0
    shown = cli("bench", "--show", "deep/bench.json")
    assert shown.status == 0
    assert shown.out.startswith("| net | step | ms |")
    assert f"{made['models'][0]['steps'][1]['ratio']:.3f}" in shown.out


def test_a_net_of_the_laboratory(cli, monkeypatch):
    few = ("--device", "cpu", "--rounds", "1", "--fractions", "1/2", "--every", "1,2")
    result = cli("bench", *few, "--models", "mlp", "--batch", "2")
    assert result.status == 0
    assert [line.split("  ")[1].strip() for line in result.out.splitlines()[2:3]] == ["plain"]
    assert "racecar 1/2 every 2" in result.out
    monkeypatch.setattr(bench, "find_spec", lambda name: None)
    for given in ((), ("--models", "mlp")):
        result = cli("bench", *few, *given)
        assert result.status == 2
        assert result.err.splitlines()[-1].endswith("TARGET as torchvision:NAME")


def test_taken_apart(cli, tmp_path):
    result = cli("bench", *QUICK, "--models", "nets:conv", "--input", "8,3,8,8", "--profile", "--out", "bench.json")
    assert result.status == 0
    assert "more: kernels" in result.out
    steps = json.loads((tmp_path / "bench.json").read_text())["models"][0]["steps"]
    assert all(0 < step["product_ms"] < step["kernel_ms"] for step in steps)
    assert steps[1]["kernels"] > steps[0]["kernels"]
    assert "| more: kernels |" in cli("bench", "--show", "bench.json").out


def test_what_fails_is_told_and_the_rest_is_kept(cli, tmp_path):
    result = cli("bench", *QUICK, "--models", "nets:conv,nets:none", "--input", "4,3,8,8", "--out", "bench.json")
    assert result.status == 2
    assert "nets:conv, 4×3×8×8" in result.out
    assert result.err.splitlines()[-1].startswith("racecar: failed: nets:none: ValueError: unknown target 'nets:none'")
    assert len(json.loads((tmp_path / "bench.json").read_text())["models"]) == 2


def test_the_batch_of_a_target(cli):
    _, x = bench.open_model("nets:flat", "3,64", 0)
    assert x.shape == (3, 64)
    _, x = bench.open_model("nets:flat", "3,64", 5)
    assert x.shape == (5, 64)


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--models", "vgg99"], "unknown net 'vgg99': give a TARGET as torchvision:NAME, or one of vgg19"),
        (["--models", "mlp,mlp"], "names a net twice"),
        (["--models", "nets:none"], "nothing could be measured: nets:none: ValueError: unknown target"),
        (["--models", "nets:flat"], "give --input"),
        (["--device", "tpu"], "unknown device 'tpu'"),
        (["--device", "meta"], "bench knows cpu and cuda, not 'meta'"),
        (["--device", "cpu", "--graphs"], "--graphs needs --device cuda"),
        (["--device", "cpu", "--combine"], "--combine is an option of the compiler"),
        (["--precision", "int8"], "--precision must be bf16 or float32"),
        (["--fractions", "1,2"], "above 0 and up to 1"),
        (["--fractions", "1,0.5,1/2"], "different numbers"),
        (["--gradients", "weights,all"], "different ones of both, reverse, weights"),
        (["--modes", "linear,all"], "different ones of auto, full, layerwise, input, linear"),
        (["--gradients", "both,both"], "different ones of both, reverse, weights"),
        (["--fractions", "half"], "--fractions 'half'"),
        (["--fractions", "1/0"], "--fractions '1/0'"),
        (["--fractions", "1e400"], "--fractions '1e400'"),
        (["--every", "0"], "whole numbers of at least 1"),
        (["--every", "1,99999999999999999999"], "at most 1,000,000"),
        (["--rounds", "0"], "--rounds"),
        (["--models", "mlp", "--input", "2,1024"], "--input is for a TARGET"),
        (["--show", "none.json"], "none.json"),
    ],
)
def test_user_errors_are_one_line(cli, arguments, words):
    result = cli("bench", *arguments)
    assert result.status == 2
    assert result.out == ""
    last = result.err.splitlines()[-1]
    assert last.startswith("racecar: ")
    assert words in last
