"""Mode "linear": ‖AᵀAh − h‖² of every weighted operation, compared with a step computed in another way."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.autograd import gradcheck
from torch.func import functional_call, grad, stack_module_state, vmap

from racecar.reverse import linear_mode
from tests.by_hand import Net, close, squares
from tests.networks import NETWORKS, SOME
from tests.reverse import linear_cases as cases
from tests.reverse.linear_cases import gradients, wrapped
from tests.reverse.mask_cases import LENGTHS, LONG, UNEQUAL
from tests.steps import assert_same, step


@pytest.mark.parametrize("gradient", ["weights", "both"])
@pytest.mark.parametrize("name", cases.CASES)
def test_a_step_by_hand(name: str, gradient: str):
    """Value and gradient; scale, reduction and fraction take turns."""
    turn = [*cases.CASES].index(name) + (gradient == "both")
    for i in (turn, turn + 2):
        scale, reduction, fraction = cases.SCALES[i % 5], ["mean", "sum"][i % 2], [1.0, 0.5, 0.75][i % 3]
        model, x, maps = cases.CASES[name]()
        chosen = {"scale": scale, "reduction": reduction, "fraction": fraction, "gradient": gradient}
        rr = wrapped(model, x, weight=0.3, **chosen)
        output, loss = rr(x)
        expected = cases.by_hand(model, x, maps, gradient, scale, fraction)
        total = 0.3 * sum(expected.values()) / (len(expected) if reduction == "mean" else 1)
        close(rr.terms, expected)
        close(loss, total)
        over = [x, *model.parameters()]
        close(gradients(loss, *over), gradients(total, *over))
        close(output, model(x))


@settings(max_examples=20, deadline=None)
@given(st.data(), st.booleans(), st.integers(1, 2), st.integers(1, 3), st.integers(1, 3), st.integers(0, 2))
def test_convolutions_of_any_shape(data: Any, transposed: bool, dims: int, kernel: int, stride: int, padding: int):
    dilation, groups = data.draw(st.integers(1, 2)), data.draw(st.integers(1, 2))
    size = data.draw(st.integers(dilation * (kernel - 1) + 1, 7))
    kinds = [nn.Conv1d, nn.Conv2d, nn.ConvTranspose1d, nn.ConvTranspose2d]
    kind = kinds[dims - 1 + 2 * transposed]
    padding = min(padding, (size - 1) * stride // 2) if transposed else padding
    layer = kind(2, 4, kernel, stride=stride, padding=padding, dilation=dilation, groups=groups)
    build = cases.sequential((2,) + (size,) * dims, layer)
    model, x, maps = build()
    rr = wrapped(model, x)
    loss, expected = rr(x)[1], cases.by_hand(model, x, maps, "weights")["0"]
    close(loss, expected)
    close(gradients(loss, layer.weight), gradients(expected, layer.weight))


@pytest.mark.parametrize("name", SOME)
def test_the_known_gradient_is_that_of_autograd(name: str, monkeypatch: pytest.MonkeyPatch):
    model, inputs = NETWORKS[name]()
    model.double()
    x = inputs if not torch.is_tensor(inputs) or not inputs.is_floating_point() else inputs.double()
    x = tuple(one.double() for one in x) if isinstance(x, tuple) else x
    rr = wrapped(model, x)
    ours = step(rr, x)
    monkeypatch.setattr(linear_mode, "_parts", lambda step, h: None)
    model, _ = NETWORKS[name]()
    assert_same(ours, step(wrapped(model.double(), x), x), rtol=1e-9, atol=1e-11)


def test_finite_differences():
    """Through h as well; and of one layer alone, whose h is the input."""
    model, x, _ = cases.sequential((2, 5), nn.Conv1d(2, 3, 2), nn.Tanh(), nn.AvgPool1d(2), nn.Conv1d(3, 2, 2))()
    rr = wrapped(model, x, gradient="both", scale="sum")
    names = [name for name, _ in rr.named_parameters()]
    start = [p.detach().clone().requires_grad_() for p in rr.parameters()]

    def loss(x: Tensor, *tensors: Tensor) -> Tensor:
        return functional_call(rr, dict(zip(names, tensors, strict=True)), (x,))[1]

    assert gradcheck(loss, (x, *start))
    for build in (cases.CASES["transposed 2d"], cases.sequential((3, 4), nn.Linear(4, 2))):
        model, x, _ = build()
        rr, (name, *_) = wrapped(model, x), [name for name, _ in model.named_parameters()]
        weight = model[0].weight.detach().clone().requires_grad_()
        alone = lambda w: functional_call(rr, {f"model.{name}": w}, (x.detach(),))[1]  # noqa: E731, B023
        assert gradcheck(alone, (weight,))


def test_recurrent_and_attention_weights():
    torch.manual_seed(0)
    lstm, x = nn.LSTM(3, 4, batch_first=True).double(), torch.randn(2, 5, 3, dtype=torch.float64)
    rr = wrapped(lstm, x)
    loss = rr(x)[1]
    states = lstm(x)[0].detach()
    before = torch.cat([torch.zeros_like(states[:, :1]), states[:, :-1]], 1)
    expected = {
        name: squares(h @ w.T @ w - h) / squares(h)
        for name, w, h in [("weight_ih_l0", lstm.weight_ih_l0, x), ("weight_hh_l0", lstm.weight_hh_l0, before)]
    }
    close(rr.terms, expected)
    over = [lstm.weight_ih_l0, lstm.weight_hh_l0, lstm.bias_ih_l0]
    close(gradients(loss, *over), gradients(sum(expected.values()), *over))

    attention = nn.MultiheadAttention(4, 1, batch_first=True).double()
    rr = wrapped(Net(lambda m, x: m.attention(x, x, x)[0], attention=attention), torch.randn_like(x[..., [0, 1, 2, 0]]))
    x = torch.randn(2, 5, 4, dtype=torch.float64)
    loss = rr(x)[1]
    w, out = attention.in_proj_weight, attention.out_proj.weight
    q, k, v = (x @ w.T + attention.in_proj_bias).chunk(3, -1)
    mixed = F.scaled_dot_product_attention(q, k, v).detach()
    close(loss, squares(x @ w.T @ w - x) / squares(x) + squares(mixed @ out.T @ out - mixed) / squares(mixed))


def causal(m: Any, x: Tensor) -> Tensor:
    """A convolution that looks both ways, a causal one and a product of every token."""
    d = m.both_ways(x).tanh() if m.both_ways else x
    return m.tokens(m.causal(d)[..., : x.shape[-1]].tanh().mT)


@pytest.mark.parametrize("gradient", ["weights", "both"])
@pytest.mark.parametrize("filling", [0.0, torch.nan])
def test_padding_does_not_count(filling: float, gradient: str):
    """The sum over samples that are cut to their length, whatever stands in the padding."""
    torch.manual_seed(0)
    both_ways = nn.Conv1d(4, 4, 3, padding=1) if filling == 0 else None  # else the model itself reads padding
    parts = {"causal": nn.Conv1d(4, 4, 3, padding=2), "tokens": nn.Linear(4, 3), "both_ways": both_ways}
    model = Net(causal, **parts).double()
    x = torch.randn(4, 4, LONG, dtype=torch.float64)
    rr = wrapped(model, x, gradient=gradient, scale="sum")
    expected = sum(rr(one[None, :, :n])[1] for one, n in zip(x, LENGTHS.tolist(), strict=True))
    loss = rr(torch.where(UNEQUAL[:, None], x, filling), reverse_mask=UNEQUAL[:, None])[1]
    close(loss, expected)
    if filling == 0 or gradient == "weights":  # 0 · NaN in the model's own backward pass
        close(gradients(loss, *model.parameters()), gradients(expected, *model.parameters()))


def test_a_causal_cut_is_part_of_the_layer():
    torch.manual_seed(0)
    conv = nn.Conv1d(2, 3, 4, padding=3).double()
    x = torch.randn(4, 2, 6, dtype=torch.float64)
    rr = wrapped(Net(lambda m, x: m.conv(x)[..., :6], conv=conv), x)
    loss, expected = rr(x)[1], squares(cases.there_and_back(lambda h: conv(h)[..., :6], x) - x) / squares(x)
    close(loss, expected)
    close(gradients(loss, conv.weight), gradients(expected, conv.weight))


def test_weights_that_are_made_or_used_twice():
    """A reused layer, a sum of linear maps and a weight that is computed."""
    x = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    model = Net(lambda m, x: m.a(m.a(x).tanh()), a=nn.Linear(4, 4)).double()
    w, h = model.a.weight, model.a(x).tanh().detach()
    expected = squares(x @ w.T @ w - x) / squares(x) + squares(h @ w.T @ w - h) / squares(h)
    loss = wrapped(model, x)(x)[1]
    close(loss, expected)
    close(gradients(loss, w), gradients(expected, w))

    parts = {"base": nn.Linear(4, 4), "down": nn.Linear(4, 2, bias=False), "up": nn.Linear(2, 4, bias=False)}
    lora = Net(lambda m, x: m.base(x) + 2 * m.up(m.down(x)), **parts).double()
    lora.base.requires_grad_(False)
    w = lora.base.weight + 2 * lora.up.weight @ lora.down.weight
    expected, loss = squares(x @ w.T @ w - x) / squares(x), wrapped(lora, x)(x)[1]
    close(loss, expected)
    over = [lora.up.weight, lora.down.weight]
    close(gradients(loss, *over), gradients(expected, *over))

    made = nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)).double()
    expected, loss = squares(x @ made.weight.T @ made.weight - x) / squares(x), wrapped(made, x)(x)[1]
    close(gradients(loss, *made.parameters()), gradients(expected, *made.parameters()))


def test_frozen_layers_and_those_without_gradient_are_left_out():
    def forward(m: Any, x: Tensor) -> Tensor:
        with torch.no_grad():
            x = m.teacher(x)
        return m.last(m.frozen(x))

    model = Net(forward, teacher=nn.Linear(4, 4), frozen=nn.Linear(4, 4), last=nn.Linear(4, 3))
    model.frozen.requires_grad_(False)
    rr = wrapped(model, torch.randn(3, 4))
    rr(torch.randn(3, 4))
    assert list(rr.terms) == ["last"]
    assert [entry.reason for entry in rr.plan] == ["no_grad", "frozen", ""]


def test_a_rule_of_ones_own():
    """Autograd takes the gradient, of another transpose as well."""
    model, x = nn.Linear(4, 3).double(), torch.randn(5, 4, dtype=torch.float64)
    rr = wrapped(model, x, rules={F.linear: lambda op, y, shape: 3 * (y - op.get(2, "bias")) @ op.get(1, "weight")})
    w, loss = model.weight, rr(x)[1]
    expected = squares(3 * x @ w.T @ w - x) / squares(x)
    close(loss, expected)
    close(gradients(loss, w), gradients(expected, w))


@pytest.mark.parametrize("gradient, fraction", [("weights", 0.5), pytest.param("both", 0.75, marks=pytest.mark.soak)])
def test_a_compiled_step_is_the_eager_step(gradient: str, fraction: float):
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv1d(2, 4, 3, stride=2), nn.ReLU(True), nn.Flatten(), nn.Linear(12, 5))
    x = torch.randn(6, 2, 8)
    rr = wrapped(model, x, gradient=gradient, fraction=fraction)
    compiled = torch.compile(rr, backend="aot_eager", fullgraph=True)
    assert_same(step(rr, x, compiled), step(rr, x), rtol=1e-4, atol=1e-5)


def test_several_nets_at_once():
    x = torch.randn(6, 2, 8, 7)
    nets = [cases.CASES["conv2d, pooled"]()[0].float() for _ in range(2)]
    for i, net in enumerate(nets):
        for p in net.parameters():
            p.data.mul_(1 + i / 10)
    rr = wrapped(nets[0].eval(), x)
    parameters, buffers = stack_module_state([wrapped(net.eval(), x) for net in nets])
    found = vmap(grad(lambda p, b: functional_call(rr, (p, b), (x,))[1]), (0, 0))(parameters, buffers)
    for i, net in enumerate(nets):
        single = wrapped(net, x)
        single(x)[1].backward()
        ours = {name: one[i] for name, one in found.items() if name.endswith("weight") and one[i].dim() > 1}
        torch.testing.assert_close(ours, {name: single.get_parameter(name).grad for name in ours})
    shares = torch.linspace(1, 2, len(nets))  # autograd around vmap instead of inside
    losses = vmap(lambda p, b: functional_call(rr, (p, b), (x,))[1])(parameters, buffers)
    (shares * losses).sum().backward()
    for name, one in found.items():
        outside = parameters[name].grad
        expected = one * shares.reshape(-1, *[1] * (one.dim() - 1))
        torch.testing.assert_close(torch.zeros_like(one) if outside is None else outside, expected)


def test_no_more_than_the_weights_is_kept():
    """Of the loss, by autograd, however large the batch is."""

    def kept(rr: nn.Module, x: Tensor) -> int:
        sizes: dict[int, int] = {}
        with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.update({t.data_ptr(): t.numel()}), lambda t: t):
            rr(x)
        return sum(sizes.values())

    model, x, _ = cases.sequential((2, 9, 9), nn.Conv2d(2, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(196, 3))()
    x = torch.randn(50, 2, 9, 9, dtype=torch.float64)
    weights = sum(p.numel() for p in model.parameters())
    more = kept(wrapped(model, x), x) - kept(model, x)
    assert 0 < more <= weights + 100 < x.numel()


def test_low_precision():
    model, x, _ = cases.CASES["conv2d, pooled"]()
    model, x = model.float(), x.detach().float()
    rr = wrapped(model, x)
    rr.zero_grad()
    exact = rr(x)[1]
    exact.backward()
    grads = {name: p.grad.clone() for name, p in rr.named_parameters() if p.grad is not None}
    with torch.autocast("cpu", torch.bfloat16):
        _, loss = rr(x)
    rr.zero_grad()
    loss.backward()
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, exact, rtol=0.05, atol=0)
    for name, expected in grads.items():
        made = rr.get_parameter(name).grad
        torch.testing.assert_close(made, expected, rtol=0.1, atol=0.1 * float(expected.abs().max()))
