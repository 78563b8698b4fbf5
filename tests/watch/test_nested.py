"""Nested tensors: the loss is put together from that of every sample alone."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from racecar import Racecar, functional
from racecar.errors import Unsupported
from tests.by_hand import Net, close, lively
from tests.losses import classic
from tests.reverse.mask_cases import same, step

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")

LENGTHS = (3, 1, 5)


def jagged(samples: list[Tensor]) -> Tensor:
    return torch.nested.nested_tensor(samples, layout=torch.jagged)


def values(x: Tensor) -> Tensor:
    return x.values() if x.is_nested else x


def tokens() -> list[Tensor]:
    torch.manual_seed(1)
    return [torch.randn(n, 8, dtype=torch.float64) for n in LENGTHS]


def words() -> list[Tensor]:
    torch.manual_seed(1)
    return [torch.randint(20, (n,)) for n in LENGTHS]


def perceptron(m: Any, x: Tensor) -> Tensor:
    y = x + m.b(torch.relu(m.a(m.norm(x))))
    return m.c(F.gelu(y * 2 - 0.5))


def transformer(m: Any, x: Tensor) -> Tensor:
    """Heads by sizes that have no number, and by views."""
    y = m.norm(x)
    q, k = (one(y).unflatten(-1, (2, 4)).transpose(1, 2) for one in (m.q, m.k))
    v = m.v(y).view(x.shape[0], x.shape[1], 2, 4).transpose(1, 2)
    y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2)
    return perceptron(m, x + m.out(y))


def classifier(m: Any, ids: Tensor) -> Tensor:
    """From words to one answer for every sample, by the largest and, padded, by the sum."""
    y = transformer(m, m.words(ids))
    each = torch.tanh(m.d(y))
    each = each.to_padded_tensor(0.0) if each.is_nested else each
    return m.head(y.amax(1)) + m.head(each.sum(1))


def net(function: Any) -> nn.Module:
    torch.manual_seed(0)
    parts: dict[str, nn.Module] = {name: nn.Linear(8, 8) for name in ("q", "k", "v", "out", "c", "d")}
    parts |= {"a": nn.Linear(8, 12), "b": nn.Linear(12, 8), "head": nn.Linear(8, 3)}
    return lively(Net(function, norm=nn.LayerNorm(8), words=nn.Embedding(20, 8), **parts).double())


MODELS = {"perceptron": (perceptron, tokens), "classifier": (classifier, words)}


Parts = list[dict[str, Tensor]]


def alone(model: nn.Module, samples: list[Tensor], **settings: Any) -> tuple[Parts, dict[str, Tensor]]:
    """The terms of every sample by itself, and all gradients added."""
    rr, terms, grads = Racecar(model, samples[0][None], **settings), Parts(), dict[str, Tensor]()
    for x in samples:
        _, some, found = step(rr, x[None])
        terms.append(some)
        grads = {name: grads.get(name, 0) + one for name, one in found.items() if one is not None}
    return terms, grads


@pytest.mark.parametrize(
    "name, mode, gradient",
    [("perceptron", "layerwise", "weights"), ("perceptron", "auto", "reverse"), ("classifier", "layerwise", "both")],
)
def test_equal_to_every_sample_by_itself(name, mode, gradient):
    """Terms of scale "sum" and gradients add up over samples; a relative term divides the sums of both."""
    function, data = MODELS[name]
    model, samples = net(function), data()
    way, x = {"mode": mode, "gradient": gradient, "reduction": "sum"}, jagged(samples)
    errors, expected = alone(model, samples, scale="sum", weight=1.0, **way)
    sums = {m: sum(one[m] for one in errors) for m in errors[0]}
    rr = Racecar(model, x, scale="sum", weight=1.0, **way)
    output, loss = rr(x)
    assert torch.equal(values(output), values(model(x)))
    close(loss.detach(), sum(sums.values()))
    _, terms, grads = step(rr, x)
    close(terms, sums)
    close({name: grads[name] for name in expected}, expected)

    rr.scale = "relative"
    parts, _ = alone(model, samples, scale="relative", weight=1.0, **way)
    energy = {m: sum(e[m] / r[m] for e, r in zip(errors, parts, strict=True)) for m in sums}
    weight = {m: float(1 / one) for m, one in energy.items()}
    _, expected = alone(model, samples, scale="sum", weight=weight, **way)
    _, terms, grads = step(rr, x)
    close(terms, {m: one / energy[m] for m, one in sums.items()})
    close({name: grads[name] for name in expected}, expected)


def test_as_a_padded_batch_with_a_mask():
    """In the pure function, of a slice, anchored, rebuilt: and one plan serves all lengths."""
    model, samples = net(perceptron), tokens()
    x, padded = jagged(samples), nn.utils.rnn.pad_sequence(samples, batch_first=True)
    mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    forgetful = torch.nested.nested_tensor_from_jagged(x.values(), x.offsets())  # how long the longest is
    for settings in ({"fraction": 0.7}, {"scale": "anchored"}, {"mode": "layerwise", "scale": "mean"}):
        rr, other = classic(model, x, **settings), classic(model, padded, **settings)
        expected = step(other, padded, reverse_mask=mask)
        same(step(rr, x), expected)
        same(step(rr, forgetful), expected)
        few = samples[1:]
        same(step(rr, jagged(few)), step(other, padded[1:], reverse_mask=mask[1:]))
        assert len(rr._engine.cache.plans) == 1
    close(functional.reverse_loss(model, x)[1], functional.reverse_loss(model, padded, mask=mask)[1])
    for ours, theirs in zip(rr.reconstruct(x), other.reconstruct(padded, reverse_mask=mask), strict=True):
        close(ours[mask], theirs[mask])


def in_place(m: Any, x: Tensor) -> Tensor:
    return m.c(m.q(x).relu_())


def packed(m: Any, x: Tensor) -> Tensor:
    """All tokens of all samples in a row, which no padded tensor has."""
    return m.c(torch.tanh(m.q(x)).values())


@pytest.mark.filterwarnings("ignore::racecar.NoRuleWarning")
@pytest.mark.parametrize("function, words", [(in_place, "in place"), (packed, "through 'nested_get.* to layer 'c'")])
def test_what_cannot_be_followed_is_refused(function, words):
    x = jagged(tokens())
    with pytest.raises((Unsupported, ValueError), match=words):
        classic(net(function), x)(x)


def test_other_nested_tensors_are_refused():
    model, x = net(perceptron), jagged(tokens())
    with pytest.raises(Unsupported, match="layout=torch.jagged, not torch.strided"):
        classic(model, torch.nested.nested_tensor(tokens()))
    holes = torch.nested.nested_tensor_from_jagged(x.values(), x.offsets(), x.offsets().diff())
    with pytest.raises(Unsupported, match=r"holes.*contiguous"):
        classic(model, holes)
    rr = classic(model, x)
    with pytest.raises(TypeError, match="give no mask with it"):
        rr(x, reverse_mask=torch.ones(3, 5, dtype=torch.bool))
    with pytest.raises(Exception, match="nested tensors cannot be followed by torch.compile"):
        torch.compile(rr, backend="eager", fullgraph=True)(x)
