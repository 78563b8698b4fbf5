"""Every parameter of two or more dimensions is in the plan: in a layer, or listed with the reason why not."""

import re
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from racecar import NoRuleWarning, NothingToReverse
from tests.by_hand import Net
from tests.losses import classic
from tests.networks import NETWORKS, call, soak_others
from tests.steps import task

C = 4


def weights(model: nn.Module) -> dict[str, nn.Parameter]:
    return {name: one for name, one in model.named_parameters() if one.dim() > 1}


def gradients(loss: Tensor, model: nn.Module) -> set[str]:
    """The weights that a loss reaches."""
    names, given = zip(*weights(model).items(), strict=True)
    found = torch.autograd.grad(loss, given, retain_graph=True, allow_unused=True)
    return {name for name, one in zip(names, found, strict=True) if one is not None}


@pytest.mark.parametrize("mode", ["auto", "layerwise"])
@pytest.mark.parametrize("name", soak_others())
def test_what_is_covered_has_a_gradient_and_the_rest_a_reason(name: str, mode: str):
    """With every activation of the forward pass a constant, the loss can reach a weight in the reverse pass alone."""
    model, inputs = NETWORKS[name]()
    model.requires_grad_()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoRuleWarning)
        rr = classic(model, inputs, mode=mode, gradient="weights")
    output, loss = call(rr, inputs)
    own, reached, reasons = gradients(task(output), model), gradients(loss, model), dict(rr.plan.uncovered)
    skipped = {entry.name for entry in rr.plan if not entry.constrained}
    sizes = {name: one.numel() for name, one in weights(model).items()}
    covered = [one for one in sizes if one not in reasons and one.rpartition(".")[0] not in skipped]
    assert set(covered) <= reached
    assert rr.plan.covered == pytest.approx(sum(sizes[one] for one in covered) / sum(sizes.values()))
    for one, reason in reasons.items():
        assert ("not seen" in reason) == (one not in own), "the output does not depend on it"
        # What no layer uses and yet is reached takes part in what is undone or applied again.
        assert one not in reached or re.search("undone|applied again|cut off", reason)


# --- weights that no rule knows -----------------------------------------------------------------------------------


def product(x: Tensor, weight: Tensor) -> Tensor:
    return torch.relu(x) @ weight


with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # people go on to use it
    scripted = torch.jit.script(product)


def in_a_thread(m: Any, x: Tensor) -> Tensor:
    made: list[Tensor] = []
    h = m.a(x)
    thread = threading.Thread(target=lambda: made.append(m.b(h)))
    thread.start()
    thread.join()
    return m.c(made[0])


def row_of(x: Tensor) -> Tensor:
    return x[:, 0].gt(0).long()


LOST = "not seen: its input comes from outside the watched calls"
CASES: dict[str, tuple[Callable[[Any, Tensor], Tensor], dict[str, Any], dict[str, str]]] = {
    "rows by index": (
        lambda m, x: m.a(x) * m.w[row_of(x)],
        {"w": torch.randn(3, C)},
        {"w": r"the data selects parts of it \(getitem\)"},
    ),
    "rows by index_select": (
        lambda m, x: m.a(x) * (2 * m.w).index_select(0, row_of(x)),
        {"w": torch.randn(3, C)},
        {"w": r"the data selects parts of it \(index_select\)"},
    ),
    "bilinear of one tensor": (
        lambda m, x: (lambda h: F.bilinear(h, h, m.w))(m.a(x)),
        {"w": torch.randn(3, C, C)},
        {"(model)": "no rule for bilinear of several tensors"},
    ),
    "einsum of two inputs": (
        lambda m, x: torch.einsum("bi,ij,bj->b", m.a(x), m.w, x),
        {"w": torch.randn(C, C)},
        {"(model)": "no rule for einsum of several tensors"},
    ),
    "complex weights": (
        lambda m, x: (torch.fft.fft(m.a(x)) @ m.w).real,
        {"w": torch.randn(C, C, dtype=torch.complex64)},
        {"w": "no rule for matmul of complex numbers"},
    ),
    "after a scripted function": (
        lambda m, x: m.b(scripted(m.a(x), torch.eye(C))),
        {"b": nn.Linear(C, C)},
        {"b": LOST},
    ),
    "computed, after a scripted function": (
        lambda m, x: torch.einsum("bi,ij->bj", scripted(m.a(x), torch.eye(C)), 2 * m.w),
        {"w": torch.randn(C, C)},
        {"w": LOST},
    ),
    "inside a scripted function": (
        lambda m, x: scripted(m.a(x), m.w),
        {"w": torch.randn(C, C)},
        {"w": "not seen: no watched call uses it"},
    ),
    "in another thread, and after it": (
        in_a_thread,
        {"b": nn.Linear(C, C), "c": nn.Linear(C, C)},
        {"b.weight": "not seen: its module runs in another thread", "c": LOST},
    ),
    "of constants": (
        lambda m, x: m.a(x) + m.b(torch.ones(1, C)),
        {"b": nn.Linear(C, C)},
        {"b": "its input does not depend on the model's input"},
    ),
    "positions, a token and an idle one": (
        lambda m, x: m.b(torch.cat([m.token.expand(len(x), 1, C), m.a(x)[:, None]], 1) + m.place),
        {"b": nn.Linear(C, C), "token": torch.randn(1, 1, C), "place": torch.randn(2, C), "idle": torch.randn(2, 2)},
        {"token": "beside the data", "place": "added to the data", "idle": "not seen: no watched call uses it"},
    ),
    "a norm over a map": (
        lambda m, x: m.b(m.norm(m.a(x).view(-1, 2, 2)).flatten(1)),
        {"b": nn.Linear(C, C), "norm": nn.LayerNorm((2, 2))},
        {"norm.weight": r"part of a norm \(layer_norm\)", "norm.bias": "part of a norm"},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_no_weight_vanishes(name: str):
    torch.manual_seed(0)
    forward, parts, expected = CASES[name]
    parts = {key: nn.Parameter(one) if isinstance(one, Tensor) else one for key, one in parts.items()}
    model, x = Net(forward, a=nn.Linear(C, C), **parts), torch.randn(5, C)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoRuleWarning)
        rr = classic(model, x)
    left_out = {entry.name or "(model)": entry.reason for entry in rr.plan if not entry.constrained}
    found = left_out | dict(rr.plan.uncovered)
    assert found.keys() == expected.keys()
    assert all(re.match(expected[name], reason) for name, reason in found.items()), found
    *_, last = lines = str(rr.plan).splitlines()
    for one, reason in found.items():
        assert any(line.startswith(f"{one} ") and line.endswith(reason) for line in lines)
    covered = sum(one.numel() for one in weights(model.a).values())
    covered += weights(model)["b.weight"].numel() if "b" in parts and not {"b", "b.weight"} & expected.keys() else 0
    percent = 100 * covered / sum(one.numel() for one in weights(model).values())
    assert last.startswith(f"covers {round(percent, 1):g} % of the parameters of two or more dimensions")
    assert len(rr.reconstruct(x)) == len(rr.plan), "one d' per entry"


def test_a_model_with_nothing_else_says_why():
    model = Net(lambda m, x: x * m.w[row_of(x)], w=nn.Parameter(torch.randn(3, C)))
    with pytest.raises(NothingToReverse, match=r"; w: the data selects parts of it \(getitem\)"):
        classic(model, torch.randn(5, C))


@pytest.mark.parametrize("missed, shown", [(0, "100"), (1, "99.9"), (50, "66.7")])
def test_only_all_is_100_percent(missed: int, shown: str):
    model = Net(lambda m, x: m.a(x), a=nn.Linear(100, 1 if missed == 50 else 100))
    if missed:
        model.idle = nn.Parameter(torch.zeros(1, missed))
    assert f"covers {shown} %" in str(classic(model, torch.randn(3, 100)).plan)
