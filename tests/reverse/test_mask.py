"""A masked batch has the loss and gradients of the batch that is cut to its real tokens."""

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from racecar import Racecar
from tests.by_hand import Net, close, lively, undo_linear
from tests.hf_zoo import make
from tests.losses import classic
from tests.reverse.mask_cases import LONG, REAL, SETTINGS, UNEQUAL, X, encoder, real, same, step


@pytest.fixture(scope="module")
def bert() -> nn.Module:
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12}
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = make("Bert", "ForSequenceClassification", vocab_size=20, max_position_embeddings=16, **sizes, **dropout)
    return lively(model.double())


@pytest.mark.parametrize("settings", SETTINGS)
def test_bert_equals_the_cut_batch(bert, settings):
    ids = torch.randint(2, 20, (4, LONG), generator=torch.Generator().manual_seed(0))
    padded = {"input_ids": ids, "attention_mask": real().long()}
    cut = {"input_ids": ids[:, :REAL], "attention_mask": torch.ones(4, REAL, dtype=torch.long)}
    same(step(Racecar(bert, padded, **settings), **padded), step(Racecar(bert, cut, **settings), **cut))


# --- torch's own transformer ------------------------------------------------------------------------------------------


TRANSFORMERS = [(True, 4, SETTINGS[1]), (True, LONG, SETTINGS[2]), (False, 4, SETTINGS[1]), (False, LONG, SETTINGS[0])]


@pytest.mark.parametrize("batch_first, samples, settings", TRANSFORMERS)
def test_key_padding_equals_the_cut_batch(batch_first, samples, settings):
    """True is padding; an encoder whose input is (T, N, C) takes a mask (N, T) all the same, also where N is T."""
    net, x = encoder(batch_first), torch.randn(samples, LONG, 8, dtype=torch.float64)
    turned, cut = (one if batch_first else one.transpose(0, 1) for one in (x, x[:, :REAL]))
    expected = step(Racecar(net, cut, **settings), cut)
    rr = Racecar(net, turned, **settings)
    same(step(rr, turned, src_key_padding_mask=~real(samples)), expected)
    same(step(rr, turned, None, ~real(samples)), expected)


def test_an_attention_of_its_own():
    """Keys and values are padded, and with them a query that is the same tensor; another one is not."""
    torch.manual_seed(0)
    net = nn.MultiheadAttention(8, 2, batch_first=True).double()
    x, query = torch.randn(2, 4, LONG, 8, dtype=torch.float64)
    rr, cut = classic(net, (x, x, x)), x[:, :REAL]
    same(step(rr, x, x, x, key_padding_mask=~real()), step(classic(net, (cut,) * 3), cut, cut, cut))
    rr = classic(net, (query, x, x))
    same(step(rr, query, x, x, ~real()), step(classic(net, (query, cut, cut)), query, cut, cut))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_key_padding_where_torch_fuses():
    """In evaluation torch packs real tokens into a nested tensor; the terms are those of training."""
    layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True)
    net, x = lively(nn.TransformerEncoder(layer, 2).double()), torch.randn(4, LONG, 8, dtype=torch.float64)
    rr = classic(net, x)
    rr(x, src_key_padding_mask=~real())
    expected = rr.terms
    rr.eval()
    with torch.no_grad():
        rr(x, src_key_padding_mask=~real())
    close(rr.terms, expected)


# --- wherever a model moves its tokens --------------------------------------------------------------------------------

C = LONG
"""Channels: as many as tokens, and as samples, so that no size tells them apart."""


def rows(m: Any, x: Tensor) -> Tensor:
    """(N·T, C)."""
    return m.b(torch.tanh(m.a(x.reshape(-1, C)))).view(*x.shape[:2], -1)


def turned(m: Any, x: Tensor) -> Tensor:
    """(T, N, C)."""
    return m.b(torch.tanh(m.a(x.transpose(0, 1)))).transpose(0, 1)


def channels_first(m: Any, x: Tensor) -> Tensor:
    """(N, C, T)."""
    return m.d(torch.relu(m.c(x.mT)))


def heads(m: Any, x: Tensor) -> Tensor:
    """(N, H, T, D), with a rotation as of positions, and attention to oneself alone."""
    q, k, v = (one.unflatten(-1, (2, 4)).transpose(1, 2) for one in m.qkv(x).chunk(3, -1))
    q = torch.cat((-q[..., 2:], q[..., :2]), -1) * 0.5 + q
    scores = (q @ k.mT).masked_fill(~torch.eye(x.shape[1], dtype=torch.bool), float("-inf"))
    return m.e((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


def letters(m: Any, x: Tensor) -> Tensor:
    """Tokens in the middle, and last; a gate of every token and channel by the first token."""
    y = torch.relu(torch.einsum("ntc,dc->dtn", torch.tanh(m.a(x)), m.b.weight))
    return m.b(torch.tanh(torch.einsum("dtn, nd -> ntd", y, x[:, 0])))


def with_a_token(m: Any, x: Tensor) -> Tensor:
    """A class token before them, which counts; then the mean over the first dimensions of the others."""
    y = torch.tanh(m.a(torch.cat([m.token.expand(len(x), 1, C), x], 1)))
    return m.b(torch.relu(m.b(y)[:, 1:3].mean(1)))


def one_by_one(m: Any, x: Tensor) -> Tensor:
    """Every token by itself, put together again."""
    y = m.a(x)
    return m.b(torch.tanh(torch.cat([(1 + i) * y[:, i : i + 1] for i in range(x.shape[1])], 1)))


def mixed(m: Any, x: Tensor) -> Tensor:
    """A product over two tokens, which is of no token any more, then one of every token again."""
    y = torch.tanh(m.f(m.a(x).mT[..., :2]))
    return m.b(torch.tanh(m.a(x) + y.mean(-1)[:, None]))


def gated(m: Any, x: Tensor) -> Tensor:
    """A gate, a residual and a norm by hand."""
    gate, value = m.two(m.norm(x)).chunk(2, -1)
    y = x + F.silu(gate) * value
    return m.b(torch.tanh(m.a(y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5))))


def parts() -> dict[str, nn.Module]:
    torch.manual_seed(0)
    return {
        "a": nn.Linear(C, C), "b": nn.Linear(C, C), "c": nn.Conv1d(C, C, 1), "d": nn.Conv1d(C, C, 1),
        "qkv": nn.Linear(C, 24), "e": nn.Linear(8, C), "two": nn.Linear(C, 2 * C), "norm": nn.LayerNorm(C),
        "f": nn.Linear(2, C),
    }  # fmt: skip


@pytest.mark.parametrize("mode", ["auto", "layerwise"])
@pytest.mark.parametrize("way", [rows, turned, channels_first, heads, letters, with_a_token, one_by_one, mixed, gated])
def test_the_mask_follows_the_tokens(way, mode):
    net = Net(way, token=nn.Parameter(torch.randn(1, 1, C)), **parts()).double()
    x, fraction = torch.randn(LONG, LONG, C, dtype=torch.float64), 0.5 if way is rows else 1.0
    settings: dict[str, Any] = {"mode": mode, "fraction": fraction, "scale": "relative" if mode == "auto" else "mean"}
    masked = step(classic(net, x, **settings), x, reverse_mask=real(LONG))
    same(masked, step(classic(net, x[:, :REAL], **settings), x[:, :REAL]))


def test_full_mode_and_the_input_scale():
    """One way from output to input; "anchored" divides by the energy of the real tokens."""
    net = Net(rows, **parts()).double()
    x = torch.randn(4, LONG, C, dtype=torch.float64)
    for settings in ({"mode": "full"}, {"mode": "input", "scale": "sum"}, {"scale": "anchored"}):
        masked = step(classic(net, x, **settings), x, reverse_mask=real())
        same(masked, step(classic(net, x[:, :REAL], **settings), x[:, :REAL]))


def test_unequal_lengths(bert):
    """Σ over real positions of the whole batch, numerator and denominator."""
    ids = torch.randint(2, 20, (4, LONG), generator=torch.Generator().manual_seed(1))
    rr, seen = classic(bert, {"input_ids": ids, "attention_mask": UNEQUAL.long()}, mode="layerwise"), {}
    hooks = [
        module.register_forward_pre_hook(lambda _, args, name=name: seen.update({name: args[0]}))
        for name, module in bert.named_modules()
        if isinstance(module, nn.Linear)
    ]
    _, loss = rr(input_ids=ids, attention_mask=UNEQUAL.long())
    for hook in hooks:
        hook.remove()
    back = rr.reconstruct(input_ids=ids, attention_mask=UNEQUAL.long())
    expected = {}
    for entry, d_back in zip(rr.plan, back, strict=True):
        d = seen[entry.name].detach()
        d_back = d_back.transpose(1, 2) if d_back.dim() == 4 else d_back  # heads before tokens
        d_back = d_back.reshape(d.shape)
        if d.dim() == 3:
            d, d_back = d[UNEQUAL], d_back[UNEQUAL]
        expected[entry.name] = (d - d_back).square().sum() / d.square().sum()
    close(rr.terms, expected)
    close(loss, sum(expected.values()))


# --- statistics of the reverse data -----------------------------------------------------------------------------------


def normalised(norm: nn.Module, x: Tensor) -> Tensor:
    """What a batch norm in training makes of tokens (n, C) that are all there is."""
    return F.batch_norm(x, None, None, norm.weight, norm.bias, True, eps=norm.eps)


@pytest.mark.parametrize("mask", [real(), UNEQUAL], ids=["equal", "unequal"])
def test_batch_norm_sees_real_tokens_alone_in_the_reverse_pass(mask):
    """Term, gradient and running statistics of the reverse data; the model's own forward pass is left alone."""
    torch.manual_seed(0)
    a, norm, b = nn.Linear(5, 6), nn.BatchNorm1d(6), nn.Linear(6, 4)
    net = lively(Net(lambda m, x: m.b(torch.tanh(m.norm(m.a(x).mT).mT)), a=a, norm=norm, b=b).double())
    x = torch.randn(4, LONG, 5, dtype=torch.float64)
    rr = classic(net, x)
    out, (_, terms, grads) = net(x), step(rr, x, reverse_mask=mask)

    d = torch.tanh(norm(a(x).mT).mT)
    seen = undo_linear(b, b(d))[mask]
    back = torch.tanh(normalised(norm, seen))
    first = undo_linear(a, back)
    expected = {
        "a": (x[mask] - first).square().sum() / x[mask].square().sum(),
        "b": (d[mask] - back).square().sum() / d[mask].square().sum().detach(),
    }
    close(terms, {name: one.detach() for name, one in expected.items()})
    found = torch.autograd.grad(sum(expected.values()), list(net.parameters()))
    close(list(grads.values()), list(found))
    assert torch.equal(out, net(x))
    kept = {name.partition(".")[2]: one for name, one in rr.reverse_statistics.export().items()}
    close(kept["mean"], seen.mean(0).detach())
    close(kept["var"], seen.var(0).detach())
    close(rr.reconstruct(x, reverse_mask=mask)[1][mask], back.detach())


@pytest.mark.parametrize("norm", [nn.InstanceNorm1d(6, affine=True), nn.GroupNorm(3, 6)], ids=["instance", "group"])
def test_norms_over_tokens_see_real_ones_alone_in_the_reverse_pass(norm):
    """Of each sample by itself: d' is what the norm makes of the sample cut to its real tokens."""
    torch.manual_seed(0)
    norm = copy.deepcopy(norm)
    net = lively(Net(lambda m, x: m.b(m.norm(m.a(x))), a=nn.Conv1d(5, 6, 1), norm=norm, b=nn.Conv1d(6, 4, 1)).double())
    x, mask = torch.randn(4, 5, LONG, dtype=torch.float64), UNEQUAL | (torch.arange(LONG) < 2)
    back = classic(net, x, mode="layerwise").reconstruct(x, reverse_mask=mask[:, None])[1]
    y = net(x) - net.b.bias[:, None]
    for i, length in enumerate(mask.sum(1)):
        seen = torch.einsum("oc,ot->ct", net.b.weight[:, :, 0], y[i, :, :length])
        close(back[i, :, :length], norm(seen[None])[0].detach())


def test_a_convolution_lets_nothing_of_padding_through():
    """Its kernel reaches over the border: in the reverse pass as if nothing stood there."""
    torch.manual_seed(0)
    net = nn.Conv1d(C, 5, 3, padding=1).double()
    x = torch.randn(4, C, LONG, dtype=torch.float64) * real()[:, None]
    same(step(classic(net, x), x, mask=real()[:, None]), step(classic(net, x[..., :REAL]), x[..., :REAL]))


def test_a_layer_norm_over_tokens_sees_real_ones_alone_in_the_reverse_pass():
    torch.manual_seed(0)
    norm = nn.LayerNorm((LONG, 6))
    net = lively(Net(lambda m, x: m.b(m.norm(m.a(x))), a=nn.Linear(5, 6), norm=norm, b=nn.Linear(6, 4)))
    back = classic(net, X, mode="layerwise").reconstruct(X, reverse_mask=UNEQUAL)[1]
    for y, mask, found in zip(net(X), UNEQUAL, back, strict=True):
        seen = undo_linear(net.b, y)[mask]
        standard = (seen - seen.mean()) / (seen.var(unbiased=False) + norm.eps).sqrt()
        expected = standard * norm.weight[mask] + norm.bias[mask]
        close(found[mask], expected.detach())


@pytest.mark.parametrize("settings", SETTINGS[1:3])
def test_a_sum_of_convolutions(settings):
    """As LoRA adapts one: none of its kernels reaches into padding on the way back, too."""

    def forward(m: Any, x: Tensor) -> Tensor:
        x = (x * (torch.arange(x.shape[1]) < REAL)[:, None]).mT  # padded with zeros, as the cut batch is
        return m.base(x) + 2 * m.up(m.down(x))

    torch.manual_seed(0)
    channels = X.shape[-1]
    base, down = (nn.Conv1d(channels, out, 3, padding=1) for out in (channels, 2))
    net = Net(forward, base=base, down=down, up=nn.Conv1d(2, channels, 1)).double()
    padded, cut = Racecar(net, X, **settings), Racecar(net, X[:, :REAL], **settings)
    assert [entry.kind for entry in padded.plan] == ["sum of conv1d"]
    same(step(padded, X, reverse_mask=real()), step(cut, X[:, :REAL].contiguous()))
