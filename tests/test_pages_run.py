"""The code blocks of documentation pages run one after another and print what the page shows."""

import inspect
import re
from pathlib import Path

import torch
from torch.nn.functional import conv_transpose2d, leaky_relu

from racecar import Racecar

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
BLOCK = re.compile(r"```python\n(.*?)```\n(?:\n```\n(.*?)```\n)?", re.DOTALL)


def run(page, capsys, **known):
    """What a page's blocks define beside what is known, and what those print that stands nowhere."""
    made, said = known, ""
    torch.manual_seed(0)
    for code, shown in BLOCK.findall(page.read_text()):
        exec(code, made)
        printed = "".join(f"{line.rstrip()}\n" for line in capsys.readouterr().out.splitlines())
        if shown:
            assert printed == shown
        else:
            said += printed
    return made, said


def test_readme(capsys):
    """The plan beside the ten lines is that of their net, and its loss reaches every weight."""
    made, said = run(ROOT / "README.md", capsys)
    assert said == ""
    assert {name for name, weight in made["model"].named_parameters() if weight.grad is None} == set()


def test_start(capsys):
    made, said = run(DOCS / "start.md", capsys)
    accuracies = [float(one) for one in re.findall(r"accuracy ([\d.]+)", said)]
    errors = [float(one) for one in re.findall(r"reverse error ([\d.]+)", said)]
    assert min(accuracies) > 0.8, "the loss that is added lets the net learn"
    assert sorted(errors, reverse=True) == errors, "with more λ more comes back"
    assert len(errors) == 3
    assert list(made["logged"]) == ["racecar/0", "racecar/3", "racecar/6"]
    model, tokens = made["classifier"], made["tokens"]
    torch.testing.assert_close(made["rr"](tokens)[0], model(tokens))
    assert (model(tokens).argmax(1) == made["label"]).float().mean() > 0.8


def test_reverse(capsys):
    made, said = run(DOCS / "reverse.md", capsys)
    back, before, after = (float(one) for one in re.findall(r"0\.\d+", said))
    assert back < 0.05
    assert after < before / 3
    first, second = made["model"][0], made["model"][2]
    with torch.no_grad():
        hidden = leaky_relu((made["model"](made["new"]) - second.bias) @ second.weight)
        torch.testing.assert_close(made["rebuilt"], (hidden - first.bias) @ first.weight)


def test_plan(capsys):
    made, _ = run(DOCS / "plan.md", capsys)
    model, x = made["rr"].model, torch.rand(4, 3, 16, 16)
    back = model.stem(x)  # stem.2 starts from its own forward output, and stem.0 goes on from what it rebuilt
    for layer in (model.stem[2], model.stem[0]):
        back = conv_transpose2d(back - layer.bias[:, None, None], layer.weight, padding=1)
        back = back.relu() if layer is model.stem[2] else back
    torch.testing.assert_close(made["rr"].reconstruct(x)[0], back)


def test_the_table_of_choosing_has_every_setting_with_its_default():
    text = (DOCS / "choosing.md").read_text()
    found = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", text, re.MULTILINE))
    wanted = inspect.signature(Racecar).parameters
    for name, default in found.items():
        assert repr(wanted[name].default).replace("'", '"') == default
    assert set(found) == set(wanted) - {"model", "example_inputs"}
