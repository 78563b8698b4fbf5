"""docs/how-it-works.md and docs/rules.md say what the code does."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import racecar
from benchmarks.tables import how_it_works, rules
from racecar.rules import registry
from tests.by_hand import Net

bessel = torch.special.bessel_j0
DOCS = Path(__file__).parents[2] / "docs"
RULES = (DOCS / "rules.md").read_text()


def test_the_values_by_hand():
    """The paper's equation, in numpy."""
    made = how_it_works.net()
    w1, b1, w2, b2 = (one.detach().double().numpy() for one in made["net"].parameters())
    d1 = made["x"].double().numpy()
    d2 = np.maximum(d1 @ w1.T + b1, 0)
    d3 = d2 @ w2.T + b2
    back2 = np.maximum((d3 - b2) @ w2, 0)
    back1 = (back2 - b1) @ w1
    lines = how_it_works.run(made).splitlines()
    shown = {line.split()[0]: re.findall(r"-?\d+\.?\d*", line[5:46]) for line in lines}
    for name, values in (("d3", d3), ("d2", d2), ("d2'", back2), ("d1", d1), ("d1'", back1)):
        assert [float(one) for one in shown[name]] == pytest.approx(values.ravel().tolist(), abs=5e-4)
    errors = [((d - back) ** 2).sum() / (d**2).sum() for d, back in ((d1, back1), (d2, back2))]
    found = [float(one) for one in re.findall(r"= ([\d.]+)", how_it_works.terms(made))]
    assert found == pytest.approx([*errors, np.mean(errors)], abs=1e-4)


def test_every_rule_is_in_the_table():
    ours = [one for one in registry._RULES.values() if one.apply is None or one.apply.__module__.startswith("racecar.")]
    assert {(str(one.role), one.apply) for one in ours} == {(str(one.role), one.apply) for one in rules.rules()}
    assert all(rules._sentence(one.apply) for one in ours if one.apply is not None)


def test_the_rule_of_ones_own(capsys):
    """The page's example runs and prints what stands there; x' is the transposed circulant matrix times y − b."""
    code, printed, activation = re.findall(r"```(?:python)?\n(.*?)```", RULES, re.DOTALL)[:3]
    made: dict = {}
    torch.manual_seed(0)
    try:
        exec(code, made)
        assert capsys.readouterr().out == printed
        layer, x = made["model"][0], made["x"]
        matrix = torch.stack([layer.weight.roll(i) for i in range(8)], 1)  # y = matrix @ x
        torch.testing.assert_close(layer(x), x @ matrix.mT + layer.bias)
        output, _ = made["rr"](x)
        last = made["model"][2]
        d2 = torch.relu((output - last.bias) @ last.weight)
        torch.testing.assert_close(made["rr"].reconstruct(x)[0], (d2 - layer.bias) @ matrix)
        exec(activation, made)
        model = Net(lambda m, x: m.b(bessel(m.a(x))), a=nn.Linear(8, 8), b=nn.Linear(8, 3))
        d2 = bessel((model(x) - model.b.bias) @ model.b.weight)
        torch.testing.assert_close(racecar.Racecar(model, x).reconstruct(x)[1], d2.detach())
    finally:
        racecar.rules.unregister(made.get("Circulant"), bessel)
