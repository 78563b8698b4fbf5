"""Batches of any form and size, and loaders that give too few of them."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from racecar.pretrain import greedy
from tests.networks import NETWORKS
from tests.pretrain.common import Once, mlp, moved, rows, same, state

FORMS: dict[str, tuple[Callable[[Tensor], Any], Callable[[Any], Any] | None]] = {
    "tuple": (lambda x: (x, "label"), None),
    "list": (lambda x: [x, torch.zeros(5)], None),
    "only": (lambda x: (x,), None),
    "dict": (lambda x: {"input": x}, None),
    "inputs": (lambda x: ("label", {"deep": x}), lambda batch: batch[1]["deep"]),
    "inputs_tuple": (lambda x: {"x": x}, lambda batch: (batch["x"],)),
    "inputs_dict": (lambda x: x, lambda batch: {"input": batch}),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_batches(form: str):
    wrap, inputs = FORMS[form]
    model, truth = mlp(), mlp()
    greedy(truth, rows())
    greedy(model, [wrap(x) for x in rows()], inputs=inputs)
    assert same(state(model), state(truth))


def test_keyword_arguments_and_more_than_one():
    model, inputs = NETWORKS["keyword_inputs"]()
    assert [one.layer for one in greedy(model, [inputs, {"x": inputs["x"]}])] == ["first", "last"]
    model, inputs = NETWORKS["two_inputs"]()
    done = greedy(model, [(inputs, "label")] * 2)
    assert [one.layer for one in done] == ["image", "table", "head"]


def test_batches_of_any_size():
    """The last one of an epoch is often smaller."""
    model = mlp()
    x = torch.cat(rows())
    done = greedy(model, DataLoader(TensorDataset(x), batch_size=4))
    assert [one.steps for one in done] == [4] * 3


def test_batches_that_take_other_ways_through_the_model():
    """A layer learns from those batches alone that pass through it."""
    model, x = NETWORKS["branching"]()
    before = state(model)
    left, right = x.abs(), -x.abs()
    done = greedy(model, [left, right], epochs=2)
    assert {"first", "left", "last"} <= {one.layer for one in done}
    assert {"first.weight", "left.weight", "last.weight"} <= moved(before, state(model))


def test_an_empty_loader_is_refused():
    with pytest.raises(ValueError, match="no batch"):
        greedy(mlp(), [])


@pytest.mark.parametrize("loader", [lambda: iter(rows()), lambda: (x for x in rows()), lambda: Once(rows(), 3)])
def test_a_loader_that_runs_dry_is_refused(loader: Callable[[], Iterable[Tensor]]):
    model = mlp()
    flags = [one.requires_grad for one in model.parameters()]
    with pytest.raises(ValueError, match="again") as caught:
        greedy(model, loader())
    assert "\n" not in str(caught.value)
    assert [one.requires_grad for one in model.parameters()] == flags


@pytest.mark.parametrize("batch", [[], "text", 3])
def test_bad_batches(batch: Any):
    with pytest.raises((ValueError, TypeError)) as caught:
        greedy(mlp(), [batch])
    assert "\n" not in str(caught.value)
