"""Where the samples are: followed through lookups, constants and norms; where they are lost, a warning says so.

The truth: a slice of a batch is the batch of those samples, for nets that treat every sample alone.
"""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.by_hand import Net, close
from tests.losses import classic

N, ROWS, C = 6, 6, 4
"""Samples, rows of the table (no more than samples: invented indices would lie outside), features."""

LOOKUPS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "rows": lambda t, y: t[y],
    "rows, all features": lambda t, y: t[y, :],
    "columns": lambda t, y: t.t()[:, y].t(),
    "under a new dimension": lambda t, y: t[None, y][0],
    "index_select": lambda t, y: t.index_select(0, y),
    "index_select of columns": lambda t, y: torch.index_select(t.t(), dim=-1, index=y).t(),
    "gather": lambda t, y: t.gather(0, y[:, None].expand(-1, C)),
    "take": lambda t, y: t.take(y[:, None]).expand(-1, C),
    "take_along_dim": lambda t, y: t.take_along_dim(y[:, None], 0),
    "embedding": lambda t, y: F.embedding(y, t),
    "a code of zeros and ones": lambda t, y: (y[:, None] > torch.arange(C))[:, None][:, 0].to(t),
}
LOST: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "with another index": lambda t, y: t[y, 0][:, None].expand(-1, C),
    "with an ellipsis": lambda t, y: t[..., y, :],
    "a part that starts where the data says": lambda t, y: t.narrow(0, y[0] % 2, 1).expand(N, -1),
    "as often as the data says": lambda t, y: t.repeat_interleave(y, 0).mean(0).expand(N, -1),
}


def conditional(lookup: Callable[[Any, Tensor], Tensor]) -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    """FiLM: what a class or a time step looks up in a table scales the features."""

    def forward(m: Any, x: Tensor, y: Tensor) -> Tensor:
        return m.c(torch.tanh(m.a(x) * m.b(lookup(m.table, y))))

    torch.manual_seed(0)
    net = Net(forward, a=nn.Linear(C, 5), b=nn.Linear(C, 5), c=nn.Linear(5, 3))
    net.register_buffer("table", torch.randn(ROWS, C))
    return net.double(), (torch.randn(N, C, dtype=torch.float64), torch.tensor([5, 0, 3, 1, 5, 2]))


@pytest.mark.parametrize("mode", ["auto", "layerwise"])
@pytest.mark.parametrize("name", LOOKUPS)
def test_what_samples_look_up_is_cut_with_them(name: str, mode: str):
    net, inputs = conditional(LOOKUPS[name])
    whole, slices = classic(net, inputs, mode=mode), classic(net, inputs, mode=mode, fraction=1 / 3)
    close(slices(*inputs)[1], whole(*(one[:2] for one in inputs))[1])


@pytest.mark.parametrize("name", LOST)
def test_a_lookup_that_cannot_be_followed_is_named(name: str):
    net, inputs = conditional(LOST[name])
    whole = classic(net, inputs)(*inputs)[1]
    slices = classic(net, inputs, fraction=1 / 3)
    with pytest.warns(UserWarning, match="fraction is ignored: the batch dimension cannot be followed through '"):
        _, loss = slices(*inputs)
    close(loss, whole)


def test_what_was_looked_up_is_the_first_d():
    """As of an embedding: the reverse pass does not go on into numbers that only say which row."""
    net, inputs = conditional(LOOKUPS["rows"])
    made = classic(net, inputs).reconstruct(*inputs)
    assert made[1].shape == (N, C)
    assert net.table[inputs[1]].shape == made[1].shape


def test_constant_matrices_leave_the_samples_where_they_are():
    """With a multiple of N time steps before the samples, which a product that came out as 0 would be taken for."""
    torch.manual_seed(0)
    net = Net(lambda m, x: m.b(torch.tanh(m.a(x.transpose(0, 1) @ m.matrix))), a=nn.Linear(C, 5), b=nn.Linear(5, 3))
    net.register_buffer("matrix", torch.randn(C, C))
    net, x = net.double(), torch.randn(N, 2 * N, C, dtype=torch.float64)
    close(classic(net, x, fraction=1 / 3)(x)[1], classic(net, x)(x[:2])[1])


def test_an_activation_in_place_of_a_part():
    """Of a view: it has one argument, and what it writes into is another tensor."""

    def forward(m: Any, x: Tensor) -> Tensor:
        h = m.a(x).clone()
        h[:, :2].relu_()
        return m.b(h)

    torch.manual_seed(0)
    net, x = Net(forward, a=nn.Linear(C, C), b=nn.Linear(C, 3)).double(), torch.randn(N, C, dtype=torch.float64)
    close(classic(net, x, fraction=1 / 3)(x)[1], classic(net, x)(x[:2])[1])


PRODUCTS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "a weight with as many rows as there are samples": lambda m, x: torch.einsum("nc,cd->nd", x, m.weight),
    "a constant matrix of that size": lambda m, x: torch.einsum("nc,cd->nd", x, m.matrix),
    "a matrix for every sample": lambda m, x: torch.bmm(x[:, None], (m.weight * m.each)[: len(x)])[:, 0],
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_only_what_is_there_for_every_sample_is_cut(name: str):
    torch.manual_seed(0)
    net = Net(lambda m, x: m.b(torch.tanh(PRODUCTS[name](m, torch.tanh(m.a(x))))), a=nn.Linear(N, N), b=nn.Linear(N, 3))
    net.weight = nn.Parameter(torch.randn(N, N))
    net.register_buffer("matrix", torch.randn(N, N))
    net.register_buffer("each", torch.randn(N, 1, 1))
    net, x = net.double(), torch.randn(N, N, dtype=torch.float64)
    close(classic(net, x, fraction=1 / 3)(x)[1], classic(net, x)(x[:2])[1])


FORMS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "type_as": lambda place, x: place.type_as(x),
    "to": lambda place, x: place.to(x),
    "expand_as": lambda place, x: place.expand_as(x),
    "view_as": lambda place, x: place.view_as(x[0]),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_constant_in_the_form_of_the_data_is_a_constant(name: str):
    """``x + place.type_as(x)`` is no join, as ``x + place`` is none: the whole reverse pass goes through."""

    def loss(form: Callable[[Tensor, Tensor], Tensor], x: Tensor, **settings: Any) -> Tensor:
        torch.manual_seed(0)
        net = Net(lambda m, x: m.b(torch.tanh(m.a(x) + form(m.place, x))), a=nn.Linear(C, C), b=nn.Linear(C, 3))
        net.register_buffer("place", torch.randn(3, C))
        return classic(net.double(), x, mode="full", **settings)(x)[1].detach()

    x = torch.randn(N, 3, C, dtype=torch.float64)
    for settings in ({}, {"fraction": 1 / 3}):
        close(loss(FORMS[name], x, **settings), loss(lambda place, x: place, x, **settings))


# --- norms in the reverse pass ----------------------------------------------------------------------------------------


def class_token(m: Any, x: Tensor) -> Tensor:
    """A norm, a token for every sample, a norm: the reverse pass goes to the first one's layout and forth."""
    return m.b(m.after(torch.cat([m.token.expand(x.shape[0], -1, -1), m.before(m.a(x))], 1)))


def expanded(m: Any, x: Tensor) -> Tensor:
    h = m.before(m.a(x[:, :1]))
    return m.b(m.after(h.expand(x.shape[0], 3, -1)))


def expanded_as_another(m: Any, x: Tensor) -> Tensor:
    return m.b(m.after(m.before(m.a(x[:, :1])).expand_as(x)))


BETWEEN = {one.__name__: one for one in (class_token, expanded, expanded_as_another)}


@pytest.mark.parametrize("gradient", ["both", "weights"])
@pytest.mark.parametrize("mode", ["auto", "layerwise"])
@pytest.mark.parametrize("name", BETWEEN)
def test_between_two_norms_constants_and_sizes_are_those_of_the_slice(name: str, mode: str, gradient: str):
    torch.manual_seed(0)
    norms = {"before": nn.LayerNorm(C), "after": nn.LayerNorm(C)}
    net = Net(BETWEEN[name], a=nn.Linear(C, C), b=nn.Linear(C, 3), **norms)
    net.token = nn.Parameter(torch.randn(1, 1, C))
    net, x = net.double(), torch.randn(N, 3, C, dtype=torch.float64)
    whole = classic(net, x, mode=mode, gradient=gradient)
    slices = classic(net, x, mode=mode, gradient=gradient, fraction=1 / 3)
    close(slices(x)[1], whole(x[:2])[1])


@pytest.mark.parametrize("gradient", ["both", "weights"])
@pytest.mark.parametrize("pool", [nn.AdaptiveAvgPool2d(1), nn.Identity()])
def test_a_group_norm_of_a_single_value_gives_its_shift(pool: nn.Module, gradient: str):
    """One channel per group, 1 × 1: torch refuses that for one sample, which a slice may be though the batch is not;
    and below a pooling the reverse pass is at 1 × 1 though the model is not."""
    torch.manual_seed(0)
    size = 4 if isinstance(pool, nn.AdaptiveAvgPool2d) else 1
    net = nn.Sequential(nn.Conv2d(3, C, 1), nn.GroupNorm(C, C), nn.Tanh(), pool, nn.Conv2d(C, 2, 1)).double()
    nn.init.normal_(net[1].bias)
    x = torch.randn(N, 3, size, size, dtype=torch.float64)
    rr = classic(net, x, fraction=1 / N, scale="mean", gradient=gradient)
    rr(x)
    shift = torch.tanh(net[1].bias).view(1, -1, 1, 1)
    d = torch.tanh(net[1](net[0](x)))[:1]
    close(rr.terms["4"], (d - shift).square().mean().detach())
    if size > 1:  # the model takes one sample, so Racecar does
        rr(x[:1])
        close(rr.terms["4"], (d - shift).square().mean().detach())
        close(classic(net, x[:1], scale="mean", gradient=gradient)(x[:1])[1].detach(), sum(rr.terms.values()))


def test_norms_that_are_made_again_keep_their_running_statistics():
    """For gradient="weights" a layer's output is computed once more, which is no second step of training."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, C, 1), nn.InstanceNorm2d(C, track_running_stats=True), nn.Conv2d(C, 2, 1))
    x = torch.randn(2, 3, 4, 4)
    rr = classic(net, x, gradient="weights")
    alone = copy.deepcopy(net)
    alone(x)
    rr(x)
    close(dict(net.named_buffers()), dict(alone.named_buffers()))
