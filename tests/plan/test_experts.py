"""Mixtures of experts: every expert's layers are compared on the tokens that came to it."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.hf_zoo import mixtral
from tests.losses import classic

N, C, E = 16, 6, 4


def by_index_add(m, h, weights, chosen):
    out = torch.zeros_like(h)
    for i in range(E):
        token, place = torch.where(chosen == i)
        out.index_add_(0, token, m.expert(i, h[token]) * weights[token, place, None])
    return out


def those_that_are_hit(m, h, weights, chosen):
    """As in transformers' Mixtral and Switch: the data says which experts run."""
    out = torch.zeros_like(h)
    mask = F.one_hot(chosen, E).permute(2, 1, 0)
    for i in mask.sum((-1, -2)).gt(0).nonzero():
        place, token = torch.where(mask[i[0]])
        out.index_add_(0, token, m.expert(i[0], h[token]) * weights[token, place, None])
    return out


def by_mask(m, h, weights, chosen):
    out = torch.zeros_like(h)
    for i in range(E):
        mask = chosen[:, 0] == i
        out[mask] = m.expert(i, h[mask]) * weights[mask]
    return out


def by_scatter(m, h, weights, chosen):
    out = torch.zeros_like(h)
    for i in range(E):
        token = torch.where(chosen[:, 0] == i)[0]
        part = m.expert(i, h.index_select(0, token)) * weights[token]
        out = out.scatter_add(0, token[:, None].expand(-1, C), part)
    return out


class Modules(nn.Module):
    """Every expert is a module."""

    def __init__(self):
        super().__init__()
        self.each = nn.ModuleList(nn.Sequential(nn.Linear(C, 8), nn.ReLU(), nn.Linear(8, C)) for _ in range(E))

    def forward(self, i, x):
        return self.each[int(i)](x)

    def matrices(self, i):
        return self.each[i][0].weight, self.each[i][0].bias, self.each[i][2].weight


class Table(nn.Module):
    """The weights of all experts are one parameter."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Parameter(torch.randn(E, 8, C)), nn.Parameter(torch.randn(E, C, 8))

    def forward(self, i, x):
        return F.linear(F.linear(x, self.up[i]).relu(), self.down[i])

    def matrices(self, i):
        return self.up[i], 0, self.down[i]


class Mixture(nn.Module):
    def __init__(self, way, expert, top):
        super().__init__()
        self.way, self.top, self.expert = way, top, expert
        self.router, self.last = nn.Linear(C, E), nn.Linear(C, 3)

    def chosen(self, x):
        return self.router(x).softmax(-1).topk(self.top, -1)

    def forward(self, x):
        return self.last(torch.relu(x + self.way(self, x, *self.chosen(x))))

    def errors(self, x):
        """Σ ‖d − d'‖² of the two layers of each expert, by hand; of those that saw a token."""
        found = {}
        for i in range(E):
            d, (w, b, v) = x[(self.chosen(x)[1] == i).any(-1)], self.expert.matrices(i)
            if len(d):
                h = (d @ w.T + b).relu()
                found[i] = (
                    (d - (h - b) @ w).square().sum(),
                    (h - (h @ v.T @ v).relu()).square().sum(),
                )
        return found


WAYS = [(way, top) for way in (by_index_add, those_that_are_hit) for top in (1, 2)] + [(by_mask, 1), (by_scatter, 1)]


def gradients(loss, module):
    found = torch.autograd.grad(loss, list(module.parameters()), allow_unused=True)
    return [torch.zeros_like(p) if one is None else one for p, one in zip(module.parameters(), found, strict=True)]


@pytest.mark.parametrize("make", [Modules, Table])
@pytest.mark.parametrize("way, top", WAYS)
def test_each_expert_is_compared_on_its_tokens(make, way, top):
    """Without a warning, and with no more plans than there are ways through the model."""
    torch.manual_seed(0)
    model = Mixture(way, make(), top).double()
    rr = classic(model, torch.randn(N, C).double(), mode="layerwise", scale="sum")
    ways = set()
    for size in (N, 5, N, 1, N, 3, N):
        x = torch.randn(size, C).double()
        _, loss = rr(x)
        errors = model.errors(x)
        hit = tuple(errors) if way is those_that_are_hit else ()
        ways.add(hit if make is Modules else len(hit))
        terms = {name: term for name, term in rr.terms.items() if name.startswith("expert")}
        assert sum(term > 0 for term in terms.values()) == 2 * len(errors), "an expert without a token has term 0"
        torch.testing.assert_close(sum(terms.values()), sum(sum(one) for one in errors.values()))
        if make is Modules:
            for i, expected in errors.items():
                torch.testing.assert_close((terms[f"expert.each.{i}.0"], terms[f"expert.each.{i}.2"]), expected)
    assert len(rr._engine.cache.plans) == len(ways)
    rr.weight = {"expert*": 1}
    total = sum(sum(one) for one in errors.values())
    torch.testing.assert_close(gradients(rr(x)[1], model.expert), gradients(total, model.expert))


@pytest.mark.parametrize("scale", ["relative", "ratio", "anchored", "mean", "sum"])
def test_an_expert_that_nobody_needs_is_not_dead(scale):
    """An expert without tokens has term and gradient 0, and no warning says that it is dead."""
    model = Mixture(by_index_add, Modules(), 1)
    nn.init.constant_(model.router.bias, 0)
    model.router.bias.data[2] = -1e9
    x = torch.randn(N, C)
    rr = classic(model, x, mode="layerwise", scale=scale)
    for _ in range(16):
        _, loss = rr(x)
        loss.backward()
    assert loss.isfinite()
    assert rr.terms["expert.each.2.0"] == rr.terms["expert.each.2.2"] == 0
    assert all(p.grad is None or not p.grad.any() for p in model.expert.each[2].parameters())


def batched(m, x):
    """One matrix for each sample, as transformers' batched_mm."""
    chosen = x.sum(-1).gt(0).long()
    return torch.bmm(m.up[chosen], x[..., None])[..., 0]


@pytest.mark.parametrize("fraction", [1.0, 0.5])
def test_a_weight_for_each_sample(fraction):
    model = Table().double()
    model.forward = lambda x: batched(model, x)
    x = torch.randn(N, C).double()
    rr = classic(model, x, scale="mean", fraction=fraction)
    _, loss = rr(x)
    some = x[: round(N * fraction)]
    w = model.up[some.sum(-1).gt(0).long()]
    back = torch.einsum("noi,noj,nj->ni", w, w, some)
    torch.testing.assert_close(loss, (some - back).square().mean())


@pytest.mark.parametrize("experts", ["eager", "batched_mm", "grouped_mm"])
def test_mixtral(experts):
    """Three ways to compute the same experts."""
    pytest.importorskip("transformers")
    torch.manual_seed(0)
    model, inputs = mixtral(experts)
    block = model.model.layers[0].mlp
    seen = []
    block.experts.register_forward_pre_hook(lambda _, args: seen.append(args))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rr = classic(model.eval(), inputs, mode="layerwise", scale="sum", weight={"*experts*": 1})
    rr(**inputs)
    x, chosen, _ = seen[-1]
    expected = {"gate_up_proj": 0, "down_proj": 0}
    for i in range(4):
        d, w, v = x[(chosen == i).any(-1)], block.experts.gate_up_proj[i], block.experts.down_proj[i]
        gate, up = (d @ w.T).chunk(2, -1)
        h = F.silu(gate) * up
        expected["gate_up_proj"] += (d - d @ w.T @ w).square().sum()
        expected["down_proj"] += (h - h @ v.T @ v).square().sum()
    if experts == "batched_mm":  # its tokens are copied, and so d is what the norm before gave
        del expected["gate_up_proj"]
    for name, one in expected.items():
        torch.testing.assert_close(sum(term for key, term in rr.terms.items() if name in key), one)
    assert [one.name for one in rr.plan.uncovered] == ["model.embed_tokens.weight"]
    for one in torch.randint(0, 40, (10, 2, 7)):
        rr(input_ids=one)
    assert len(rr._engine.cache.plans) <= (4 if experts == "eager" else 1)
