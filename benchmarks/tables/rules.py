"""The table of docs/rules.md: every rule of the registry."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.tables.common import markdown
from racecar.rules import Rule, find
from racecar_lab.report.groups import collect

HEAD = ("operations", "role", "what comes back", "bias", "norm, activation", "size")
ROLES = {
    "layer": ("subtracted", "those before it are applied again", "of its input, exactly"),
    "norm": ("its shift is added again", "applied again, on the reverse data", "stays"),
    "activation": ("–", "applied again", "stays"),
    "resample": ("–", "applied at the size that it makes, then it is undone", "of its input, exactly"),
    "shape": ("–", "–", "of its input; zeros for what was cut off"),
    "affine": ("what was added is subtracted", "–", "stays"),
    "select": ("–", "–", "zeros for what was left out; right before a layer, the part is its d"),
    "pass": ("–", "–", "stays"),
    "source": ("–", "–", "its output is the first d"),
}
"""Role → what its rules do to bias, norm and activation, size."""
WORDS = {
    "pass": "the same, unchanged",
    "source": "nothing: the reverse pass ends here",
    "select": "the part",
}
"""Role that needs no function → what comes back."""


def rules() -> Iterator[Rule]:
    """The rule of every function of torch, and of every module class, that has one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some names of torch are old
        kinds = [getattr(space, name, None) for space in (torch, F, Tensor, torch.special, nn) for name in dir(space)]
    for kind in kinds:
        for function in (kind, getattr(kind, "__get__", None)):  # a property, such as x.T, is called as its getter
            if callable(function) and (rule := find(function)) is not None:
                yield rule


def table(_: Path) -> str:
    """A row for each function that rules have, or for each role that needs none."""
    kinds_of = collect(((str(rule.role), rule.apply), rule.kind) for rule in rules())
    rows = []
    for role in ROLES:
        functions = [(apply, sorted(set(kinds))) for (of_role, apply), kinds in kinds_of.items() if of_role == role]
        for apply, kinds in sorted(functions, key=lambda pair: pair[1]):
            comes_back = WORDS.get(role, "") if apply is None else _sentence(apply)
            rows.append([", ".join(f"`{kind}`" for kind in kinds), role, comes_back, *ROLES[role]])
    return markdown(HEAD, rows)


def _sentence(apply: Any) -> str:
    """The first sentence of a rule's docstring."""
    text = " ".join((apply.__doc__ or "").split())
    return re.split(r"(?<=\w)\. ", text)[0].rstrip(".").replace("|", "\\|")
