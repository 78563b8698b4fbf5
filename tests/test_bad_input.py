"""Bad models, inputs and settings are refused in one clear sentence that names them."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn

from racecar import NothingToReverse, NotReversible
from tests.by_hand import Net
from tests.losses import classic

X = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))


def chain() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


class Unused(nn.Module):
    """Has a layer and does not use it."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x) * 2


class Apart(Unused):
    """Uses its layer on a constant alone."""

    def forward(self, x: Tensor) -> Tensor:
        return x.sum() + self.layer(torch.ones(1, 4))


class Picky(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1] != 4:
            raise KeyError("four columns, please")
        return self.layer(x)


def quantised() -> nn.Module:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.backends.quantized, "engine", "qnnpack")  # which all processors have
        return torch.ao.quantization.quantize_dynamic(chain(), {nn.Linear}, dtype=torch.qint8)


def part_quantised() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), quantised())


def scripted() -> nn.Module:
    return torch.jit.script(chain())


def part_scripted() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), scripted())


def traced() -> nn.Module:
    return torch.jit.trace(chain(), X)


def exported() -> nn.Module:
    return torch.export.export(chain(), (X,)).module()


def part_exported() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), exported())


def unflattened() -> nn.Module:
    return torch.export.unflatten(torch.export.export(chain(), (X,)))


def part_meta() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, affine=False).to("meta"))


def identities() -> nn.Module:
    return nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 3))


def graph_net() -> nn.Module:
    return Net(lambda m, x, edges: m.b(torch.sparse.mm(edges, m.a(x)).relu()), a=nn.Linear(4, 6), b=nn.Linear(6, 3))


IDS = torch.tensor([[1, 2], [3, 4]])
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it is "in beta"
    SPARSE_ROWS = X.to_sparse_csr()


def parallel() -> nn.Module:
    return nn.DataParallel(chain())


def part_parallel() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.DataParallel(chain()))


Case = tuple[Callable[[], Any], Any, dict[str, Any], type[Exception], tuple[str, ...]]

CASES: dict[str, Case] = {
    # models
    "no module": (lambda: torch.tanh, X, {}, TypeError, ("model", "Module")),
    "a class": (lambda: nn.Linear, X, {}, TypeError, ("model", "Module")),
    "empty": (nn.Sequential, X, {}, NothingToReverse, ("Sequential",)),
    "no weights": (lambda: nn.Sequential(nn.ReLU(), nn.Flatten()), X, {}, NothingToReverse, ("Sequential",)),
    "norm alone": (lambda: nn.Sequential(nn.LayerNorm(4), nn.ReLU()), X, {}, NothingToReverse, ("Sequential",)),
    "unused parameters": (Unused, X, {}, NothingToReverse, ("Unused",)),
    "a layer without data": (Apart, X, {}, NothingToReverse, ("Apart",)),
    "an embedding alone": (lambda: nn.Embedding(9, 4), torch.tensor([1, 2]), {}, NothingToReverse, ("Embedding",)),
    "quantised": (quantised, X, {}, TypeError, ("quantised",)),
    "part quantised": (part_quantised, X, {}, TypeError, ("quantised", "'1")),
    "scripted": (scripted, X, {}, TypeError, ("TorchScript",)),
    "part scripted": (part_scripted, X, {}, TypeError, ("TorchScript", "'1")),
    "traced": (traced, X, {}, TypeError, ("TorchScript",)),
    "exported": (exported, X, {}, TypeError, ("torch.export", "before export")),
    "part exported": (part_exported, X, {}, TypeError, ("torch.export", "'1'")),
    "exported, unflattened": (unflattened, X, {}, TypeError, ("torch.export",)),
    "meta": (lambda: chain().to("meta"), X.to("meta"), {}, TypeError, ("meta device", "'0'", "to_empty")),
    "part meta": (part_meta, X, {}, TypeError, ("meta device", "'1'")),
    "DataParallel": (parallel, X, {}, TypeError, ("DataParallel", "DistributedDataParallel")),
    "part DataParallel": (part_parallel, X, {}, TypeError, ("DataParallel", "DistributedDataParallel", "'1'")),
    # settings
    "mode": (chain, X, {"mode": "reverse"}, ValueError, ("mode", "'reverse'", "auto", "full", "layerwise", "input")),
    "no mode": (chain, X, {"mode": None}, ValueError, ("mode", "None", "auto")),
    "scale": (chain, X, {"scale": "max"}, ValueError, ("scale", "'max'", "relative", "mean", "sum")),
    "fraction 0": (chain, X, {"fraction": 0}, ValueError, ("fraction", "0")),
    "fraction 2": (chain, X, {"fraction": 2.0}, ValueError, ("fraction", "2.0")),
    "fraction -1": (chain, X, {"fraction": -1}, ValueError, ("fraction", "-1")),
    "fraction NaN": (chain, X, {"fraction": float("nan")}, ValueError, ("fraction", "nan")),
    "fraction str": (chain, X, {"fraction": "half"}, ValueError, ("fraction", "half")),
    "fraction bool": (chain, X, {"fraction": True}, ValueError, ("fraction", "True")),
    "fraction tensor": (chain, X, {"fraction": torch.tensor(0.5)}, ValueError, ("fraction", "tensor")),
    "fraction -0.0": (chain, X, {"fraction": -0.0}, ValueError, ("fraction", "-0.0")),
    "mode list": (chain, X, {"mode": ["full"]}, ValueError, ("mode", "['full']")),
    "mode array": (chain, X, {"mode": numpy.ones(3)}, ValueError, ("mode", "array")),
    "weight NaN": (chain, X, {"weight": float("nan")}, ValueError, ("weight", "nan")),
    "weight negative": (chain, X, {"weight": -2}, ValueError, ("weight", "-2")),
    "weight pattern": (chain, X, {"weight": {"conv*": 1}}, ValueError, ("'conv*'", "'0'", "'2'")),
    "nothing constrained": (chain, X, {"weight": {"2": 1}, "mode": "input"}, NothingToReverse, ("weight", "'2'")),
    "scale anchored": (identities, IDS, {"scale": "anchored"}, ValueError, ("'anchored'", "no floating-point")),
    # example inputs
    "example list": (chain, [[X]], {}, TypeError, ("example_inputs", "list", "batch[0]")),
    "example None": (chain, None, {}, TypeError, ("example_inputs", "NoneType")),
    "example shape": (chain, X[:, :3], {}, ValueError, ("Sequential", "(5, 3)", "mat1 and mat2")),
    "example refused": (Picky, X[:, :3], {}, ValueError, ("Picky", "(5, 3)", "KeyError", "four columns, please")),
    "example missing": (chain, (), {}, ValueError, ("Sequential", "TypeError", "input")),
    "example unknown": (chain, {"image": X}, {}, ValueError, ("Sequential", "TypeError", "image")),
    "example dtype": (chain, X.long(), {}, ValueError, ("Sequential", "RuntimeError")),
    "example keyword": (chain, {1: X}, {}, ValueError, ("Sequential", "keywords")),
    "example empty": (chain, X[:0], {}, ValueError, ("no samples",)),
    "example array": (chain, X.numpy(), {}, TypeError, ("example_inputs", "ndarray")),
    "example complex": (chain, X + 1j, {}, ValueError, ("Sequential", "ComplexFloat")),
    "example on meta": (chain, X.to("meta"), {}, ValueError, ("Sequential", "meta")),
    "sparse": (chain, X.to_sparse(), {}, TypeError, ("'0'", "sparse_coo", "to_dense")),
    "sparse rows": (chain, SPARSE_ROWS, {}, TypeError, ("'0'", "sparse_csr", "to_dense")),
    "sparse, anchored": (graph_net, (X, torch.eye(5).to_sparse()), {"scale": "anchored"}, ValueError, ("sparse",)),
}

# torch's own about its scripting and quantisation, which it will drop one day
OLD = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")


def sentence(error: BaseException) -> str:
    """The message, which must be one line that says something."""
    message = str(error)
    assert len(message.split()) > 4
    if "does not accept" not in message:  # the model's own message may have several lines
        assert "\n" not in message
        assert len(message) < 300
    return message


@OLD
@pytest.mark.parametrize("name", CASES)
def test_refused_at_construction(name: str):
    build, example, settings, kind, words = CASES[name]
    model = build()
    with pytest.raises(kind) as caught:
        classic(model, example, **settings)
    message = sentence(caught.value)
    assert [word for word in words if word not in message] == []
    assert isinstance(caught.value, ValueError | TypeError)


def test_the_models_own_error_is_the_cause():
    with pytest.raises(ValueError, match="Picky") as caught:
        classic(Picky(), X[:, :3])
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_later_call_that_the_model_rejects_raises_its_own_error():
    rr = classic(Picky(), X)
    with pytest.raises(KeyError, match="four columns"):
        rr(X[:, :3])
    rr(X)


def test_errors_are_named_by_the_package():
    for kind in (NotReversible, NothingToReverse):
        assert issubclass(kind, ValueError)


class Distances(nn.Linear):
    """No rule, and not affine."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cdist(x, self.weight)


@pytest.mark.filterwarnings("ignore::racecar.NoRuleWarning")
@pytest.mark.parametrize("weight", [{"1": 1}, {"*": 0, "1": 1}], ids=str)
def test_a_weight_for_layers_without_a_rule_alone(weight: dict[str, float]):
    """Nothing is left to constrain, although a weight is not 0."""
    with pytest.raises(NothingToReverse) as caught:
        classic(nn.Sequential(nn.Linear(4, 6), Distances(6, 3)), X, weight=weight)
    assert "'1'" in sentence(caught.value)


@pytest.mark.filterwarnings("ignore::racecar.NoRuleWarning")
def test_no_layer_with_a_rule():
    with pytest.raises(NothingToReverse, match="Distances.*register"):
        classic(Distances(4, 3), X)


# --- NaN ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", ["relative", "mean", "sum"])
@pytest.mark.parametrize("mode", ["auto", "layerwise"])
def test_nan_activations_are_named_and_not_hidden(mode: str, scale: str):
    """A NaN in the last layer's weight makes its own term NaN; layer-wise no other term."""
    model = chain()
    model[2].weight.data[0, 0] = float("nan")
    rr = classic(model, X, mode=mode, scale=scale)
    _, loss = rr(X)
    assert loss.isnan()
    assert {name: bool(term.isnan()) for name, term in rr.terms.items()} == {"0": mode == "auto", "2": True}


@pytest.mark.parametrize("scale", ["relative", "mean", "sum"])
def test_nan_inputs(scale: str):
    x = X.clone()
    x[1, 1] = float("nan")
    rr = classic(chain(), X, scale=scale)
    _, loss = rr(x)
    assert loss.isnan()
    assert all(term.isnan() for term in rr.terms.values())


def test_nan_on_the_way_back_to_an_empty_activation():
    """Relative: "0 where the denominator is 0" never hides a NaN."""
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    nn.init.constant_(model[0].bias, -100)  # d2 is 0
    model[2].bias.data[0] = float("nan")
    rr = classic(model, X)
    _, loss = rr(X)
    assert rr.terms["2"].isnan()
    assert loss.isnan()


def test_a_join_names_its_place():
    model = Net(lambda m, x: m.b(torch.tanh(m.a(x)) + x), a=nn.Linear(4, 4), b=nn.Linear(4, 3))
    with pytest.raises(NotReversible) as caught:
        classic(model, X, mode="full")
    message = sentence(caught.value)
    assert [word for word in ("'full'", "'add'", "'a'", "'auto'") if word not in message] == []
