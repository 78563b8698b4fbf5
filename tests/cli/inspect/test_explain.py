"""racecar explain: the plan of any target as a table that can be read and searched."""

import re
import sys

import pytest
import torch
import typer
from typer.main import get_command

from racecar import Racecar
from racecar.cli.app import app
from racecar.cli.inspect.explain import read_weight
from tests.hf_zoo import HF_MODELS


def layers(out: str) -> list[str]:
    """First words of the table's rows."""
    return [line.split()[0] for line in out.splitlines()[3:-1]]


@pytest.mark.parametrize("mode", [[], ["auto"]])
def test_prints_the_plan_that_a_racecar_has(cli, mode):
    """Without --mode it is the default of Racecar."""
    result = cli("explain", "nets:conv", "--input", "2,3,8,8", *(f"--mode={one}" for one in mode))
    import nets

    plan = Racecar(nets.conv().eval(), torch.rand(2, 3, 8, 8), *mode).plan
    first, _, rest = result.out.partition("\n")
    assert result.status == 0
    assert first == "nets:conv: Sequential, 845 parameters, input 2×3×8×8"
    assert rest == f"{plan}\n"
    assert result.err == ""


def test_a_frozen_model_can_be_looked_at(cli):
    result = cli("explain", "nets:stiff", "--input", "2,64")
    assert result.status == 0
    assert result.out.count("frozen") == 2
    assert "0 of 2 layers constrained" in result.out


def test_mode_and_lambda_reach_the_plan(cli):
    result = cli("explain", "nets:conv", "--input", "2,3,8,8", "--mode", "full", "--lambda", "0.1", "--lambda", "4=0")
    assert re.search(r"^4 +linear +no +- +weight 0$", result.out, re.M)
    assert result.out.endswith("1 of 2 layers constrained, mode full\n")


@pytest.mark.parametrize(
    "texts, weight",
    [
        ([], 7.0),
        (["0.5"], {"*": 0.5}),
        (["*=1", "fc=0"], {"*": 1.0, "fc": 0.0}),
        (["a=b=2"], {"a=b": 2.0}),
        (["a=1", "*=2", "a=3"], {"*": 2.0, "a": 3.0}),  # the last one wins
    ],
)
def test_lambda(texts, weight):
    found = read_weight(texts, 7.0)
    assert found == weight
    assert not isinstance(found, dict) or list(found) == list(weight)


def test_several_inputs(cli):
    by_position = cli("explain", "nets:Pair", "--input", "1,3;1,4").out
    by_name = cli("explain", "nets:Pair", "--input", "y=1,4;x=1,3").out
    assert by_position.splitlines()[1:] == by_name.splitlines()[1:]
    assert layers(by_name) == ["left", "right"]


def test_lines_are_never_cut_or_wrapped_when_piped(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    result = cli("explain", "nets:conv", "--input", "2,3,8,8", "--mode", "full")
    assert re.search(r"^4 +linear +yes +forward +the last layer$", result.out, re.M)


def test_a_terminal_gets_a_drawn_table_with_every_word(cli, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "90")
    result = cli("explain", "nets:conv", "--input", "2,3,8,8", "--mode", "full")
    assert "━" in result.out
    assert all(word in result.out for word in ("conv2d", "linear", "the last layer", "2 of 2 layers constrained"))


def test_what_has_no_rule_is_a_short_note(cli):
    result = cli("explain", "nets:odd", "--input", "2,4")
    assert result.status == 0
    assert re.fullmatch(r"note: no rule for 'fft_rfft': [^\n]*\n", result.err)


def test_hugging_face_configuration(cli, tmp_path):
    model, inputs = HF_MODELS["resnet"]()
    model.save_pretrained(tmp_path / "net")
    result = cli("explain", "hf:net/config.json", "--input", "1,3,64,64")
    assert result.status == 0
    assert layers(result.out) == [entry.name for entry in Racecar(model.eval(), inputs).plan]
    assert "pixel_values 1×3×64×64" in result.out.splitlines()[0]


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["explain", "nets"], "unknown target 'nets': it must be package.module:callable, timm:NAME"),
        (["explain", "nets:"], "unknown target 'nets:'"),
        (["explain", "nets:conv"], "give --input, for example --input 1,3,224,224"),
        (["explain", "nets:conv", "--input", "1,3,8"], "Sequential does not accept"),
        (["explain", "nets:conv", "--input", "1,3,9,9"], "Sequential does not accept"),
        (["explain", "nets:conv", "--input", "1x3"], "is no shape"),
        (["explain", "nets:conv", "--input", "1,3,100000000,100000000"], "does not fit into memory"),
        (["explain", "nets:conv", "--input", "1,3,8,100000000000000000"], "does not fit into memory"),
        (["explain", "nets:conv", "--input", "1,3,8,4611686018427387904"], "is no shape"),
        (["inspect", "nets:flat", "--input", "100000000000,64"], "does not fit into memory"),
        (["explain", "nets:conv", "--input", "1,3,8,8", "--seed", "100000000000000000000000"], "--seed"),
        (["explain", "nets:conv", "--input="], "--input is empty"),
        (["explain", "nets:conv", "--input", "1,3,8,8", "--mode", "back"], "mode must be one of auto, full"),
        (["explain", "nets:conv", "--input", "1,3,8,8", "--lambda", "much"], "give a number, or PATTERN=NUMBER"),
        (["explain", "nets:conv", "--input", "1,3,8,8", "--lambda", "-1"], "at least 0"),
        (["explain", "nets:conv", "--input", "1,3,8,8", "--lambda", "fc=1"], "'fc' matches no layer"),
        (["explain", "nets:joined", "--input", "1,3", "--mode", "full"], "use mode='auto' or mode='layerwise'"),
        (["explain", "nets:nothing", "--input", "1,3"], "no weighted layer"),
        (["explain", "nets:talkative", "--input", "1,3"], "RuntimeError: one two three"),
        (["explain"], "TARGET"),
        (["explain", "nets:conv", "--inptu", "1"], "--inptu"),
        (["explian"], "explain"),
    ],
)
def test_user_errors_are_one_line(refused, arguments, words):
    assert words in refused(*arguments)


def test_debug_shows_the_traceback_wherever_it_stands(cli):
    for arguments in (["--debug", "explain", "nets:none"], ["explain", "nets:none", "--debug"]):
        result = cli(*arguments)
        assert result.status == 2
        assert "Traceback" in result.err
        assert result.err.splitlines()[-1] == "racecar: unknown target 'nets:none': nets has no 'none'"


def test_a_bug_is_not_hidden(cli, monkeypatch):
    def broken(*_, **__):
        raise ZeroDivisionError("ours")

    monkeypatch.setattr("racecar.cli.target.target.check_model", broken)
    with pytest.raises(ZeroDivisionError):
        cli("explain", "nets:conv", "--input", "1,3,8,8")


def test_an_interrupt_is_silent(cli, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("racecar.cli.target.target.check_model", stop)
    result = cli("explain", "nets:conv", "--input", "1,3,8,8")
    assert (result.status, result.out, result.err) == (130, "", "")


def test_a_group_of_commands_alone_shows_its_help(cli, monkeypatch):
    group = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
    for name in ("one", "two"):
        group.command(name)(lambda: None)
    monkeypatch.setattr(app, "registered_groups", [])
    app.add_typer(group, name="group")
    monkeypatch.setattr("racecar.cli.app._command", lambda: get_command(app))
    result = cli("group")
    assert (result.status, result.err) == (0, "")
    assert re.search("^  two", result.out, re.M)
