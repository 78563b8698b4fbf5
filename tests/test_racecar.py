"""The class Racecar: what may be set, replaced, compiled and copied, and the messages about the rest."""

import copy
import itertools
from collections import OrderedDict

import pytest
import torch
from torch import Tensor, nn

from racecar import NothingToReverse, NotReversible, Racecar, functional
from tests.by_hand import Net
from tests.networks import NETWORKS
from tests.steps import assert_same, step

X = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))


def chain(seed: int = 0, middle: int = 5) -> nn.Sequential:
    torch.manual_seed(seed)
    norm = nn.BatchNorm1d(middle)
    return nn.Sequential(nn.Linear(4, middle), norm, nn.ReLU(), nn.Linear(middle, 3), nn.Tanh(), nn.Linear(3, 2))


# --- state dicts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "build", [chain, lambda seed: nn.Sequential(OrderedDict(model=chain(seed)))], ids=["plain", "names as ours"]
)
def test_the_models_state_dict_and_a_racecars_are_loaded(build):
    """What does not fit is refused as torch refuses it."""
    source = Racecar(build(0), X)
    for i, state in enumerate((source.state_dict(), source.model.state_dict())):
        rr = Racecar(build(i + 1), X)
        assert not any(rr.load_state_dict(state))
        torch.testing.assert_close(rr.model.state_dict(), source.model.state_dict(), rtol=0, atol=0)
        name = next(iter(state))
        state["unknown"] = state.pop(name)
        assert rr.load_state_dict(state, strict=False) == ([name], ["unknown"])
        for wrong, kind, words in (
            (state, RuntimeError, rf'Missing.*"{name}"(?s:.*)"unknown"'),
            (rr, TypeError, "dict"),
        ):
            with pytest.raises(kind, match=words):
                rr.load_state_dict(wrong)


# --- another model --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["layerwise", "full"])
def test_a_model_that_is_replaced(mode: str):
    """The next call equals that of a Racecar made for the new model: settings stay, statistics are reset."""
    rr = Racecar(chain(0), X, mode=mode, weight=0.3)
    rr(X)
    rr.model = chain(1, middle=7)
    other = Racecar(chain(1, middle=7), X, mode=mode, weight=0.3)
    with pytest.raises(RuntimeError, match="model was replaced.*call it once"):
        print(rr.plan)
    for _ in range(2):
        assert_same(step(rr, X), step(other, X))
    assert str(rr.plan) == str(other.plan)
    assert {name for name, _ in rr.named_parameters()} == {name for name, _ in other.named_parameters()}
    rr.eval()
    torch.testing.assert_close(rr.reconstruct(X), other.eval().reconstruct(X))


def test_a_layer_that_is_replaced():
    rr, other = Racecar(chain(0), X), chain(0)
    for model in (rr, other):
        model(X)
    rr.model[3], other[3] = nn.Linear(5, 3), nn.Linear(5, 3)
    other[3].load_state_dict(rr.model[3].state_dict())
    ours, theirs = step(rr, X), step(Racecar(other, X), X)
    assert_same(ours._replace(buffers={}), theirs._replace(buffers={}))


def test_a_model_that_is_replaced_by_none_that_can_be_reversed():
    rr = Racecar(chain(), X)
    rr.model = nn.Sequential(nn.ReLU(), nn.Flatten())
    for _ in range(2):
        with pytest.raises(NothingToReverse, match="no weighted layer"):
            rr(X)
    rr.model = nn.DataParallel(chain())
    with pytest.raises(TypeError, match="DataParallel"):
        rr(X)


# --- inference mode -------------------------------------------------------------------------------------------------

MASK = torch.tensor([1.0, 0, 2, 1])


@pytest.mark.parametrize("weight", [0.3, {"*": 0.3, "0": MASK}], ids=["number", "tensor"])
@pytest.mark.parametrize("scale", ["relative", "sum"])
def test_made_in_inference_mode(scale: str, weight: object):
    """It trains like a Racecar made outside of inference mode."""
    model = chain()
    with torch.inference_mode():
        inside = {**weight, "0": MASK.clone()} if isinstance(weight, dict) else weight
        rr = Racecar(model, X, "full", inside, scale)
        rr.eval()(X)
    other = Racecar(chain(), X, "full", weight, scale)
    assert_same(step(rr.train(), X), step(other, X))
    with torch.inference_mode():
        rr.weight = 0.7
    other.weight = 0.7
    assert_same(step(rr, X), step(other, X))


# --- compiled parts -------------------------------------------------------------------------------------------------


def compiled_in_place(model: nn.Sequential, part: int | None = None) -> nn.Module:
    (model if part is None else model[part]).compile(backend="eager")
    return model


COMPILED = {
    "whole": (lambda m: torch.compile(m, backend="eager"), "the model is compiled"),
    "part": (lambda m: nn.Sequential(m[0], torch.compile(m[1:], backend="eager")), "submodule '1' is compiled"),
    "in place": (compiled_in_place, "the model is compiled"),
    "part in place": (lambda m: compiled_in_place(m, 3), "submodule '3' is compiled"),
}


@pytest.mark.parametrize("name", COMPILED)
def test_a_compiled_model(name: str):
    build, words = COMPILED[name]
    model = build(chain())
    for make in (lambda: Racecar(model, X), lambda: functional.reverse_loss(model, X)):
        with pytest.raises(TypeError, match=rf"{words}.*wrap the plain model.*torch\.compile\(rr\)"):
            make()


def test_a_compiled_function():
    """It runs, planned as it was written."""
    torch._dynamo.reset()
    model, other = (Net(lambda m, x: m.b(m.f(m.a(x))), a=nn.Linear(4, 5), b=nn.Linear(5, 3)) for _ in range(2))
    other.load_state_dict(model.state_dict())
    model.f, other.f = torch.compile(torch.tanh, backend="eager"), torch.tanh
    rr = Racecar(model, X)
    assert str(rr.plan) == str(Racecar(other, X).plan)
    with torch.no_grad():
        torch.testing.assert_close(rr(X), Racecar(other, X)(X))
    torch._dynamo.reset()


# --- settings -------------------------------------------------------------------------------------------------------

SETTINGS = {
    "mode": ("layerwise", "full", "auto", "input"),
    "scale": ("relative", "ratio", "anchored", "mean", "sum"),
    "gradient": ("reverse", "both", "weights"),
    "reduction": ("mean", "sum"),
    "fraction": (1.0, 0.5),
}
CHANGES = [(name, *two) for name, values in SETTINGS.items() for two in itertools.pairwise((*values, values[0]))]


@pytest.mark.parametrize("name, old, new", CHANGES)
def test_a_setting_that_is_changed(name: str, old: object, new: object):
    """The next step equals that of a Racecar made with this setting."""
    model, x = NETWORKS["mlp_norm"]()
    rr, other = Racecar(copy.deepcopy(model), x, **{name: old}), Racecar(model, x, **{name: new})
    setattr(rr, name, new)
    assert getattr(rr, name) == new
    ours, theirs = step(rr, x), step(other, x)
    assert_same(ours._replace(buffers={}), theirs._replace(buffers={}))
    assert str(rr.plan) == str(other.plan)


def test_a_setting_that_cannot_be_is_refused_and_changes_nothing():
    model, x = NETWORKS["resnet"]()
    rr = Racecar(model, x, weight={"*": 1.0})
    before = str(rr), str(rr.plan)
    with pytest.raises(NotReversible, match="mode 'full' needs one reverse pass"):
        rr.mode = "full"
    for name, value in {"mode": "some", "scale": "max", "fraction": 2.0, "gradient": "d", "reduction": "max"}.items():
        with pytest.raises(ValueError, match=f"{name} must be"):
            setattr(rr, name, value)
    assert (str(rr), str(rr.plan)) == before
    rr = Racecar(chain(), X, weight={"5": 1.0})
    with pytest.raises(NothingToReverse, match="leave every layer"):
        rr.mode = "input"
    assert rr.mode == "layerwise"


# --- samples --------------------------------------------------------------------------------------------------------

EMPTY = "the inputs hold no samples"


@pytest.mark.parametrize("scale, fraction", [("relative", 1.0), ("anchored", 0.5), ("mean", 0.5), ("sum", 1.0)])
def test_an_empty_batch(scale: str, fraction: float):
    model = chain().eval()
    rr = Racecar(model, X, scale=scale, fraction=fraction)
    for call in (rr, rr.reconstruct, lambda x: functional.reverse_loss(model, x), lambda x: Racecar(model, x)):
        with pytest.raises(ValueError, match=EMPTY):
            call(X[:0])
    rr.weight = 0
    assert rr(X[:0])[0].shape == (0, 2)


def test_an_empty_batch_leaves_no_trace():
    rr = Racecar(chain(), X)
    before = {name: buffer.clone() for name, buffer in rr.named_buffers()}
    with pytest.raises(ValueError, match=EMPTY):
        rr(X[:0])
    torch.testing.assert_close(dict(rr.named_buffers()), before, rtol=0, atol=0)


@pytest.mark.parametrize("first", [torch.tensor([2.0]), torch.full((1, 4), 2.0)], ids=["number", "row"])
def test_a_leading_argument_of_one_sample(first: Tensor):
    """All samples count, which is said where a part was asked for."""
    net = Net(lambda m, t, x: m.b(torch.tanh(m.a(x * t))), a=nn.Linear(4, 5), b=nn.Linear(5, 3))
    _, expected = Racecar(net, (first, X), scale="sum")(first, X)
    rr = Racecar(net, (first, X), scale="sum", fraction=0.5)
    with pytest.warns(UserWarning, match="fraction is ignored: the model's first argument, of one sample"):
        _, loss = rr(first, X)
    torch.testing.assert_close(loss, expected)


# --- names ----------------------------------------------------------------------------------------------------------


class Bare(nn.Module):
    """Its two weights are its own."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Parameter(torch.randn(4, 5)), nn.Parameter(torch.randn(5, 3))

    def forward(self, x):
        return torch.tanh(x @ self.one) @ self.two


@pytest.mark.parametrize("weight", [{"(model)": 0.3}, {"": 0.3}, {"*": 1.0, "(model)": 0.3}], ids=str)
@pytest.mark.parametrize("build", [lambda: nn.Linear(4, 3), Bare], ids=["a layer", "weights of its own"])
def test_the_model_itself_has_one_name(build, weight):
    """What tables and messages call it is what a weight may call it."""
    model = build()
    torch.testing.assert_close(Racecar(model, X, weight=weight)(X)[1], Racecar(model, X, weight=0.3)(X)[1])
