"""The examples run, offline and as they stand, and what they train learns something."""

import re
import runpy
import sys
import warnings
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    "name", ["plain_loop", "lightning_callback", "fabric_loop", "accelerate_loop", "transformers_trainer"]
)
def test_example(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setattr(sys, "argv", [name, "--epochs", "4" if name == "plain_loop" else "3"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what other libraries say about themselves
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    said = capsys.readouterr().out
    assert float(re.findall(r"accuracy (\d\.\d+)", said)[-1]) > 0.6
    assert not list(EXAMPLES.glob("out"))
