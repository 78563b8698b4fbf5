"""λ as numbers and patterns, schedules, and refused values."""

import re
from collections import Counter
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from tests.by_hand import Net, close
from tests.losses import classic
from tests.networks import NETWORKS
from tests.reverse.weight_cases import chain, terms

PATTERNS: list[tuple[Any, dict[str, float]]] = [
    (1, {"0": 1, "2": 1, "4": 1}),
    (0.25, {"0": 0.25, "2": 0.25, "4": 0.25}),
    ({"*": 2}, {"0": 2, "2": 2, "4": 2}),
    ({"2": 3}, {"2": 3}),  # what no pattern matches is left out
    ({"*": 1, "4": 0}, {"0": 1, "2": 1}),
    ({"*": 1, "4": 5}, {"0": 1, "2": 1, "4": 5}),
    ({"4": 5, "*": 1}, {"0": 1, "2": 1, "4": 1}),  # the later one wins
    ({"[02]": 1.5, "0": 4}, {"0": 4, "2": 1.5}),
    ({"?": 1, "[!0]": 0.5}, {"0": 1, "2": 0.5, "4": 0.5}),
]


@pytest.mark.parametrize("weight, expected", PATTERNS, ids=lambda value: str(value))
def test_numbers_and_patterns(weight: Any, expected: dict[str, float]):
    """Given at once, and set later."""
    net, x = chain()
    by_hand = terms(net, x)
    later = classic(net, x, mode="layerwise", scale="sum", weight=1)
    later.weight = weight
    for rr in (classic(net, x, mode="layerwise", scale="sum", weight=weight), later):
        assert rr.weight == weight
        _, loss = rr(x)
        close(rr.terms, {name: by_hand[name] for name in expected})  # before λ
        close(loss.detach(), sum(factor * by_hand[name] for name, factor in expected.items()))
        assert [entry.name for entry in rr.plan if entry.constrained] == list(expected)


SUFFIXES: list[tuple[str, str, list[str]]] = [
    ("reused", "step", ["step", "step#2", "step#3"]),
    ("reused", "step#2", ["step#2"]),
    ("reused", "step#*", ["step#2", "step#3"]),
    ("reused", "*#3", ["step#3"]),
    ("cross_attention", "attention.q_proj_weight", ["attention.q_proj_weight"]),
    ("cross_attention", "attention", [f"attention.{one}_proj_weight" for one in "qkv"]),
    ("cross_attention", "attention.*", [*(f"attention.{one}_proj_weight" for one in "qkv"), "attention.out_proj"]),
    ("bare_weights", "kernel", ["kernel"]),
    ("vgg_plain", "features.*", ["features.0", "features.2", "features.5"]),
]


@pytest.mark.parametrize("network, pattern, expected", SUFFIXES)
def test_patterns_match_with_and_without_suffixes(network: str, pattern: str, expected: list[str]):
    model, inputs = NETWORKS[network]()
    rr = classic(model, inputs, weight={pattern: 1})
    assert [entry.name for entry in rr.plan if entry.constrained] == expected


def test_a_suffix_wins_over_the_name_without_it_if_it_comes_later():
    model, inputs = NETWORKS["reused"]()
    rr = classic(model, inputs, weight={"step": 1, "step#2": 0})
    assert [entry.name for entry in rr.plan if entry.constrained] == ["step", "step#3"]
    rr.weight = {"step#2": 0, "step": 1}
    assert [entry.name for entry in rr.plan if entry.constrained] == ["step", "step#2", "step#3"]


def sum_of_two(**parts: nn.Module) -> Net:
    """The layers `a`, of which `b` is a part, and `last`, whose weight is computed."""
    last = nn.utils.parametrizations.weight_norm(nn.Linear(5, 3))
    parts = {"a": nn.Linear(4, 5), "b": nn.Linear(4, 5, bias=False), "last": last, "spare": nn.Linear(4, 5)} | parts
    return Net(lambda m, x: m.last(torch.relu(m.a(x) + m.b(x) if x.sum() > 0 else m.b(x))), **parts)


@pytest.mark.parametrize(
    "weight, names",
    [({"a": 1}, ["a"]), ({"[ab]": 1}, ["a"]), ({"*": 1, "a*": 0}, ["last"]), ({"last": 1, "spare": 1}, ["last"])],
)
def test_a_sum_goes_by_one_name(weight: dict[str, float], names: list[str]):
    assert [
        entry.name for entry in classic(sum_of_two(), torch.rand(6, 4), weight=weight).plan if entry.constrained
    ] == names


@pytest.mark.parametrize("pattern, part, layer", [("b", "b", "a"), ("b*", "b", "a"), ("last.*", "last.p", "last")])
@pytest.mark.parametrize("late", [False, True])
def test_a_pattern_that_matches_a_part_of_a_layer_alone(pattern: str, part: str, layer: str, late: bool):
    """Such a pattern is refused, even with weight 0, which would be ignored."""
    rr = classic(sum_of_two(), torch.rand(6, 4))
    weight, message = (
        {"*": 1, pattern: 0},
        rf"'{re.escape(pattern)}' .*'{part}.*is part of layer '{layer}'.* as '{layer}'",
    )
    with pytest.raises(ValueError, match=message):
        classic(rr.model, torch.rand(6, 4), weight=weight) if not late else setattr(rr, "weight", weight)
    assert rr.weight == 1


def test_a_part_that_is_a_layer_elsewhere():
    """By another way through the model, once that was seen."""
    rr = classic(sum_of_two(), torch.rand(6, 4))
    rr(-torch.rand(6, 4))
    rr.weight = {"*": 1, "b": 0}
    rr(-torch.rand(6, 4))
    assert list(rr.terms) == ["last"]
    rr(torch.rand(6, 4))
    assert list(rr.terms) == ["a", "last"]


def test_a_pattern_may_name_a_layer_of_another_branch():
    """The layer exists, even if this call does not use it."""
    model, x = NETWORKS["branching"]()
    rr = classic(model, x, weight={"*": 1, "left": 2, "right": 3}, scale="sum", mode="layerwise")
    for inputs, names in ((x, ["first", "left", "last"]), (-x, ["first", "right", "right#2", "last"])):
        _, loss = rr(inputs)
        assert list(rr.terms) == names
        factors = {"left": 2, "right": 3, "right#2": 3}
        torch.testing.assert_close(loss.detach(), sum(factors.get(name, 1) * term for name, term in rr.terms.items()))


# --- schedules ----------------------------------------------------------------------------------------------------


class Count(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls[str(func.overloadpacket)] += 1
        return func(*args, **(kwargs or {}))


def work(function: Any, x: Tensor) -> Counter[str]:
    with Count() as count:
        function(x)
    return count.calls


@pytest.mark.parametrize("zero", [0, 0.0, {"*": 0}, {"*": 1, "features*": 0, "classifier": 0}, {"*": torch.zeros(())}])
def test_weight_0_is_no_work(zero: Any):
    model, x = NETWORKS["vgg"]()
    rr = classic(model, x)
    rr(x)
    rr.weight = zero
    extra = work(rr, x) - work(model, x)
    assert sum(extra.values()) <= 4, extra  # the 0 itself, and a look at a weight that is a tensor
    assert not [name for name in extra if "conv" in name or "mm" in name or "norm" in name], extra
    output, loss = rr(x)
    assert loss == 0
    assert loss.shape == ()
    assert loss.dtype == torch.float32
    assert len(rr.terms) == 0
    (output.sum() + loss).backward()


def test_a_layer_left_out_costs_nothing():
    """Layer by layer, only the one transposed product of the constrained layer is made."""
    net, x = chain()
    rr = classic(net, x, mode="layerwise", weight={"2": 1})
    extra = work(rr, x) - work(net, x)
    assert sum(count for name, count in extra.items() if name.endswith(".mm")) == 1, extra


@pytest.mark.parametrize("weight", [0, 2.0, {"0": 1}, {"*": 1, "4": 0}])
def test_setting_the_weight_plans_nothing_anew(weight: Any):
    net, x = chain()
    calls: list[int] = []
    net.register_forward_hook(lambda *_: calls.append(1))
    rr = classic(net, x)
    assert calls == [1], "the example inputs are used once"
    rr.weight = weight
    assert calls == [1]
    rr(x)
    assert calls == [1, 1]


def test_weight_from_0_and_back():
    net, x = chain()
    rr = classic(net, x, weight=0, scale="sum", mode="layerwise")
    assert rr(x)[1] == 0
    by_hand = terms(net, x)
    for weight in (0.5, 0.0, 2.0):
        rr.weight = weight
        close(rr(x)[1].detach().double(), weight * sum(by_hand.values()))


def test_input_mode_without_the_first_layer_has_nothing_to_compare():
    """A weight of 0 for the one term that is left: the loss is 0, as with any weight 0, no error in mid-training."""
    net, x = chain()
    rr = classic(net, x, mode="input")
    rr.weight = {"*": 1, "0": 0}
    output, loss = rr(x)
    assert loss == 0
    assert torch.equal(output, net(x))


# --- weights that cannot be meant ---------------------------------------------------------------------------------


NAMES = ("'0'", "'2'", "'4'")
BAD: list[tuple[Any, type[Exception], tuple[str, ...]]] = [
    (float("nan"), ValueError, ("weight", "nan")),
    (float("inf"), ValueError, ("weight", "inf")),
    (-1, ValueError, ("weight", "-1")),
    ("1", TypeError, ("weight", "str")),
    (None, TypeError, ("weight", "NoneType")),
    (True, TypeError, ("weight", "bool")),
    ([1, 1, 1], TypeError, ("weight", "list")),
    ({}, ValueError, ("weight",)),
    ({"*": 1, "2": float("nan")}, ValueError, ("'2'", "nan")),
    ({"*": 1, "2": -0.5}, ValueError, ("'2'", "-0.5")),
    ({"*": "1"}, TypeError, ("'*'", "str")),
    ({0: 1}, TypeError, ("0", "pattern")),
    ({"0": torch.tensor([1.0, -1, 0, 0])}, ValueError, ("'0'", "negative")),
    ({"0": torch.tensor([1.0, float("nan"), 0, 0])}, ValueError, ("'0'", "NaN")),
    (1e39, ValueError, ("weight", "float32")),
    (10**400, ValueError, ("weight", "float32")),
    (1j, TypeError, ("weight", "complex")),
    ({"*": 1, "2": 1e39}, ValueError, ("'2'", "float32")),
    ({"*": None}, TypeError, ("'*'", "NoneType")),
    ({"*": [1]}, TypeError, ("'*'", "list")),
    ({"*": True}, TypeError, ("'*'", "bool")),
    (numpy.bool_(True), TypeError, ("weight", "bool")),
    (numpy.array([1, None], dtype=object), TypeError, ("weight", "ndarray")),
    (torch.tensor([]), ValueError, ("weight", "empty")),
    ({"0": torch.ones(0, 4)}, ValueError, ("'0'", "empty")),
    (torch.tensor(1j), TypeError, ("weight", "complex64")),
    (torch.ones(4).to(torch.float8_e4m3fn), TypeError, ("weight", "float8")),
    ({"0": torch.ones(4, device="meta")}, ValueError, ("'0'", "meta")),
    ({"0": torch.ones(4).to_sparse()}, TypeError, ("'0'", "dense")),
    (torch.tensor(1e39, dtype=torch.float64), ValueError, ("weight", "infinite")),
    ({"*": 1, "fc": 1}, ValueError, ("'fc'", *NAMES)),
    ({"layer*": 1}, ValueError, ("'layer*'", *NAMES)),
]


def refusal(weight: Any, kind: type[Exception], late: bool) -> str:
    """The message with which a weight is refused, at the latest at the first call."""
    net, x = chain()
    rr = classic(net, x)

    def use() -> None:
        if late:
            rr.weight = weight
        (rr if late else classic(net, x, weight=weight))(x)

    with pytest.raises(kind) as caught:
        use()
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("weight, kind, words", BAD, ids=lambda value: str(value)[:40])
def test_bad_weights(weight: Any, kind: type[Exception], words: tuple[str, ...]):
    """Refused when the Racecar is made, and when they are set later."""
    for late in (False, True):
        message = refusal(weight, kind, late)
        assert [word for word in words if word not in message] == []


SHAPES = {
    "other features": (5,),  # d_1 is 5 × 4
    "with the batch": (5, 4),
    "too many dimensions": (3, 1, 4),
}


@pytest.mark.parametrize("case", SHAPES)
def test_tensors_that_do_not_fit_one_sample(case: str):
    for late in (False, True):
        message = refusal({"0": torch.ones(SHAPES[case])}, ValueError, late)
        assert [word for word in ("'0'", str(SHAPES[case]), "(4,)") if word not in message] == []


@pytest.mark.parametrize("weight", [-1, float("nan"), {"fc": 1}])
def test_a_refused_weight_leaves_the_old_one(weight: Any):
    net, x = chain()
    rr = classic(net, x, weight=0.5)
    with pytest.raises(ValueError, match="weight"):
        rr.weight = weight
    assert rr.weight == 0.5
    assert rr(x)[1] > 0
