"""A recorded batch norm gives the same numbers bit for bit, and the moments of its input."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from racecar import Racecar
from racecar.reverse.noise_floors import noise_floors
from racecar.rules.norm import moments
from racecar.rules.registry import Operation
from racecar.watch.recorder import Watch
from tests.by_hand import squares

FORMS = {nn.BatchNorm1d: [(5, 3), (4, 3, 5)], nn.BatchNorm2d: [(4, 3, 2, 5)], nn.BatchNorm3d: [(2, 3, 2, 2, 2)]}
PRECISIONS = {
    "float32": (torch.float32, torch.float32),
    "float64": (torch.float64, torch.float64),
    "mixed": (torch.bfloat16, torch.float32),
    "low": (torch.bfloat16, torch.bfloat16),
}
"""Of the input and of the weights."""


def run(norm: nn.Module, x: Tensor, watched: bool) -> tuple[list[Tensor | None], Watch]:
    """All that a norm makes: output, gradients, running statistics."""
    norm, x, watch = copy.deepcopy(norm), x.clone().requires_grad_(), Watch()
    if watched:
        with watch:
            out = norm(x)
    else:
        out = norm(x)
    out.square().mul(torch.arange(out.numel()).view(out.shape)).sum().backward()
    return [out, x.grad, *(one.grad for one in norm.parameters()), *norm.buffers()], watch


@given(
    st.sampled_from([(kind, shape) for kind, shapes in FORMS.items() for shape in shapes]),
    st.sampled_from(list(PRECISIONS)),
    st.sampled_from([0.1, 0.0, None]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.sampled_from([1e-5, 1e-3]),
)
def test_bit_for_bit(form, precision: str, momentum: float | None, affine: bool, track: bool, train: bool, eps: float):
    (kind, shape), (of_x, of_weights) = form, PRECISIONS[precision]
    torch.manual_seed(0)
    norm = kind(3, eps, momentum, affine, track).to(of_weights).train(train)
    for one in norm.parameters():
        nn.init.normal_(one)
    x = (3 + torch.randn(shape)).to(of_x)
    (expected, _), (found, watch) = run(norm, x, False), run(norm, x, True)
    for one, other in zip(found, expected, strict=True):
        assert (one is None and other is None) or torch.equal(one, other)

    call = watch.calls[-1]
    assert call.func is F.batch_norm
    rough = precision == "low" or (precision == "mixed" and not affine and not track)
    assert (call.moments is not None) == ((train or not track) and not rough)
    if call.moments is not None:
        var, mean = torch.var_mean(x.double(), [0, *range(2, x.dim())], correction=0)
        assert (call.moments.eps, call.moments.dtype) == (eps, of_x)
        tolerance = {"rtol": 1e-12, "atol": 0} if precision == "float64" else {"rtol": 1e-5, "atol": 0}
        torch.testing.assert_close(call.moments.mean.double(), mean, **tolerance)
        torch.testing.assert_close(call.moments.inverse.double(), (var + eps).rsqrt(), **tolerance)


def test_channels_last_and_autocast():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    x = torch.randn(2, 3, 6, 6).contiguous(memory_format=torch.channels_last)
    for half in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            (expected, _), (found, watch) = run(net, x, False), run(net, x, True)
        assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
        assert [call.moments is not None for call in watch.calls if call.func is F.batch_norm] == [True]
        assert found[0].is_contiguous(memory_format=torch.channels_last)


class Names(TorchFunctionMode):
    """A mode of the user's own."""

    def __init__(self) -> None:
        super().__init__()
        self.funcs: list[object] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.funcs.append(func)
        return func(*args, **(kwargs or {}))


class Marked(Tensor):
    """A subclass of the user's own, which sees the functions that are called with it."""

    funcs: list[object] = []  # noqa: RUF012

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.funcs.append(func)
        return super().__torch_function__(func, types, args, kwargs or {})


def test_others_see_the_call_as_it_was_made():
    norm, x = nn.BatchNorm1d(3), torch.randn(4, 3)
    with Names() as names, Watch() as watch:
        norm(x)
    assert F.batch_norm in names.funcs
    assert torch._batch_norm_impl_index not in names.funcs
    assert watch.calls[-1].moments is None
    with Watch() as watch:
        out = norm(x.as_subclass(Marked))
    assert isinstance(out, Marked)
    assert torch._batch_norm_impl_index not in Marked.funcs


@pytest.mark.parametrize("shape, eps", [((1, 3), 1e-5), ((3,), 1e-5), ((4, 5), 1e-5), ((4, 3), 0.0)])
def test_the_same_error(shape: tuple[int, ...], eps: float):
    said = []
    for mode in (torch.enable_grad(), Watch()):
        with mode, pytest.raises((ValueError, RuntimeError, IndexError)) as error:
            F.batch_norm(torch.randn(shape), torch.zeros(3), torch.ones(3), training=True, eps=eps)
        said.append(str(error.value))
    assert said[0] == said[1]


INPUTS = {
    "0": lambda x: 0 * x,
    "all alike": lambda x: 0 * x + 200,
    "alike but for rounding": lambda x: 200 + 1e-6 * x,
    "tiny": lambda x: 1e-7 * x,
    "tiny beside eps": lambda x: 1e-4 * x,
    "far from 0": lambda x: 1e3 + x,
    "a channel alike": lambda x: torch.cat([0 * x[:, :1] + 7, x[:, 1:]], 1),
    "all channels alike but one": lambda x: torch.cat([0 * x[:, :7] + 7, x[:, 7:]], 1),
    "as it should be": lambda x: x,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", INPUTS)
def test_the_same_noise_floor(name: str, dtype: torch.dtype):
    """The noise floor equals that from moments computed again; only constant channels are below it."""
    torch.manual_seed(0)
    norm, x = nn.BatchNorm2d(8).to(dtype), INPUTS[name](torch.randn(16, 8, 5, 5, dtype=dtype))
    again = moments(Operation(F.batch_norm, (None, None, None), {"training": True}), x)
    blank = name in ("0", "all alike") or (name == "alike but for rounding" and dtype == torch.float32)
    for layout in (torch.contiguous_format, torch.channels_last):
        with Watch() as watch:
            out = norm(x.contiguous(memory_format=layout))
        known = watch.calls[-1].moments
        assert known is not None
        found, expected = (noise_floors([one], [out.numel()]) for one in (known, again))
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=0)
        assert (squares(out) <= found).item() == blank


def test_nothing_is_found_again(monkeypatch: pytest.MonkeyPatch):
    """No moments are computed twice in a step, and loss and terms are the same."""
    torch.manual_seed(0)
    parts = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.ReLU()]
    net, x = nn.Sequential(*parts, nn.Flatten(), nn.Linear(4 * 16, 3)), torch.randn(4, 3, 8, 8)
    rr = Racecar(net, x, fraction=1 / 2)
    found = rr(x)[1], dict(rr.terms)
    monkeypatch.setattr("racecar.watch.recorder.BATCH_NORM", None)
    expected = rr(x)[1], dict(rr.terms)
    torch.testing.assert_close(found, expected)
