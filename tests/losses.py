"""The loss that the formulas of these tests were derived for, with every setting by name, whatever the defaults are."""

from functools import partial
from typing import Any

from torch import nn

from racecar import Racecar, functional

CLASSIC = {"weight": 1.0, "scale": "relative", "gradient": "both", "reduction": "sum"}


def classic(model: nn.Module, example_inputs: Any, mode: str = "auto", **settings: Any) -> Racecar:
    """`Racecar` with the paper's gradient and its sum over the layers, of relative errors."""
    return Racecar(model, example_inputs, mode, **{**CLASSIC, **settings})


classic_loss = partial(functional.reverse_loss, mode="auto", **CLASSIC)
