"""How a mask is given, what is refused, and masks in compiled and stacked models."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from racecar import Every, Racecar, functional
from tests.by_hand import Net, close, lively
from tests.losses import CLASSIC, classic
from tests.reverse.mask_cases import LONG, REAL, UNEQUAL, X, encoder, real, same, step

# --- how a mask is given ----------------------------------------------------------------------------------------------


class TwoLayers(nn.Sequential):
    """A model that takes no argument of ours."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        super().__init__(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 4))
        self.double()


def test_every_way_of_giving_it_is_one():
    """By either name, in the pure function, through `Every`; bool or whole numbers; a mask for all channels."""
    rr, cut = classic(TwoLayers(), X), step(classic(TwoLayers(), X), X[:, :REAL])
    for given in ({"mask": real()}, {"mask": real().long()}, {"reverse_mask": real()}, {"mask": real()[..., None]}):
        same(step(rr, X, **given), cut)
    _, loss = functional.reverse_loss(rr.model, X, mask=real(), mode="auto", **CLASSIC)
    close(loss.detach(), cut[0])
    every = Every(rr, 2)
    for on in (True, False):
        assert every.step() is on
        output, loss = rr(X, mask=real())
        assert torch.equal(output, rr.model(X))
        close(loss.detach(), 2 * cut[0] if on else torch.zeros(()))
    same(step(Racecar(TwoLayers(), {"input": X, "mask": real()}, "auto", **CLASSIC), X, mask=real()), cut)


def test_the_models_own_mask_stays_its_own():
    """An encoder's ``mask`` is which token sees which; ours is ``reverse_mask``, and wins over what it is given."""
    net, x = encoder(True), torch.randn(4, LONG, 8, dtype=torch.float64)
    sees = torch.eye(LONG, dtype=torch.bool).logical_not()
    rr, cut = classic(net, x), step(classic(net, x), x[:, :REAL], mask=sees[:REAL, :REAL])
    assert torch.equal(rr(x, mask=sees)[0], net(x, mask=sees))
    same(step(rr, x, mask=sees, reverse_mask=real()), cut)
    last = torch.zeros(4, LONG, dtype=torch.bool)
    last[:, -1] = True
    same(step(rr, x, mask=sees, src_key_padding_mask=last, reverse_mask=real()), cut)


def test_encoder_and_decoder_have_masks_of_their_own():
    """Also where both have as many tokens."""
    torch.manual_seed(0)
    net = lively(nn.Transformer(8, 2, 1, 1, 12, dropout=0.0, batch_first=True).double())
    src, tgt = torch.randn(2, 4, LONG, 8, dtype=torch.float64)
    few = real(tokens=5)
    masks = {"src_key_padding_mask": ~real(), "tgt_key_padding_mask": ~few, "memory_key_padding_mask": ~real()}
    same(step(classic(net, (src, tgt)), src, tgt, **masks), step(classic(net, (src, tgt)), src[:, :REAL], tgt[:, :5]))


def anything(m: Any, *args: Tensor, **kwargs: Any) -> Tensor:
    return m.a(*args)


def shortened(m: Any, x: Tensor, attention_mask: Tensor | None = None) -> Tensor:
    return m.b(torch.tanh(m.a(x[:, None])))


def cut_before(m: Any, x: Tensor) -> Tensor:
    """What a convolution makes of later tokens."""
    return m.b(torch.tanh(m.a(x[:, None])[..., 2:]))


REFUSED = [
    (
        Net(cut_before, a=nn.Conv1d(1, 3, 3, padding=2), b=nn.Conv1d(3, 2, 1)).double(), (X[..., 0],),
        {"reverse_mask": real()}, ValueError, "cannot be followed through 'conv1d'.* to layer 'b'",
    ),
    *(
        (nn.Conv1d(5, 3, 3, **how).double(), (X.mT,), {"mask": real()[:, None]}, ValueError,
         "followed through 'conv1d'.* to 'conv1d' in the reverse pass")
        for how in ({"padding": 2}, {"stride": 2})
    ),
    (TwoLayers(), (X,), {"mask": real().double()}, TypeError, "bool or whole numbers, not torch.float64"),
    (TwoLayers(), (X,), {"mask": [1, 0]}, TypeError, "must be a tensor, not list"),
    (TwoLayers(), (X,), {"mask": real(3)}, ValueError, r"no input begins with the shape \(3, 7\)"),
    (Net(anything, a=TwoLayers()), (X,), {"mask": real()}, TypeError, "no use of it: write reverse_mask="),
    (
        Net(shortened, a=nn.Conv1d(1, 3, 2, stride=2), b=nn.Conv1d(3, 2, 1)).double(), (X[..., 0],),
        {"reverse_mask": real()}, ValueError, "cannot be followed through 'conv1d'.* to layer 'b'",
    ),
]  # fmt: skip


@pytest.mark.parametrize("model, args, given, error, words", REFUSED)
def test_what_cannot_be_followed_is_refused(model, args, given, error, words):
    with pytest.raises(error, match=words):
        Racecar(model, args)(*args, **given)


def test_as_many_samples_as_tokens_are_told():
    """Before torch's attention that wants tokens first, nobody knows whether the model turns its input or not."""
    net = Net(lambda m, x, src_key_padding_mask: m.a(x, src_key_padding_mask=src_key_padding_mask), a=encoder(False))
    inputs = {"x": torch.randn(LONG, LONG, 8, dtype=torch.float64), "src_key_padding_mask": ~real(LONG)}
    with pytest.warns(UserWarning, match=r"padding counts.*may be \(N, T, …\) or \(T, N, …\)"):
        classic(net, inputs)(**inputs)


@pytest.mark.parametrize(
    "mask, words",
    [(real(), "cannot be followed"), (real().double(), "no .N, T. of 0 and 1"), (real(4, 9), "no input begins with")],
)
def test_a_models_own_mask_that_says_nothing_to_us_is_told_once(mask, words):
    net = Net(shortened, a=nn.Conv1d(1, 3, 2, stride=2), b=nn.Conv1d(3, 2, 1)).double()
    rr = Racecar(net, X[..., 0])
    with pytest.warns(UserWarning, match=f"padding counts.*{words}"):
        rr(X[..., 0], attention_mask=mask)
    rr(X[..., 0], attention_mask=mask)  # a second warning would be an error


# --- compiled, and many at once ---------------------------------------------------------------------------------------


class Normed(nn.Module):
    """Tokens with a batch norm, as rows and channels first."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        super().__init__()
        self.a, self.norm, self.b, self.e = nn.Linear(5, 6), nn.BatchNorm1d(6), nn.Linear(6, 4), nn.Conv1d(4, 3, 1)
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norm(self.a(x).flatten(0, 1)))
        return self.e(torch.tanh(self.b(y).unflatten(0, x.shape[:2])).transpose(1, 2))


@pytest.mark.parametrize("dtype", [torch.long, pytest.param(torch.bool, marks=pytest.mark.soak)])
def test_compiled_as_eager_and_once(dtype):
    """Values, gradients and reverse statistics; other numbers in the mask need no other graph."""
    torch._dynamo.reset()
    eager, rr = (classic(Normed(), X, fraction=0.5, scale="mean") for _ in range(2))
    run = torch.compile(rr, backend="aot_eager", fullgraph=True)
    for mask in (real().to(dtype), UNEQUAL.to(dtype)):
        rr.zero_grad()
        _, loss = run(X, mask=mask)
        loss.backward()
        ours = loss.detach(), rr.terms, {name: one.grad for name, one in rr.model.named_parameters()}
        same(ours, step(eager, X, mask=mask))
        torch._dynamo.config.error_on_recompile = True
    torch._dynamo.config.error_on_recompile = False
    close(rr.reverse_statistics.export(), eager.reverse_statistics.export())
    torch._dynamo.reset()


def asking(m: Any, x: Tensor, attention_mask: Tensor) -> Tensor:
    """As Hugging Face's decoders, which ask their mask whether anything is masked at all, where they may."""
    real = attention_mask.bool()
    if not torch.compiler.is_compiling() and bool(real[:, :1].sum() == 0):
        return m.b(x)
    return m.b(torch.tanh(m.a(x)) * real[..., None])


@pytest.mark.soak
def test_compiled_where_the_model_asks_its_mask_only_uncompiled():
    torch._dynamo.reset()
    torch.manual_seed(0)
    rr = classic(Net(asking, a=nn.Linear(5, 5), b=nn.Linear(5, 5)).double(), (X, UNEQUAL.long()))
    expected = step(rr, X, UNEQUAL.long())
    rr.zero_grad()
    _, loss = torch.compile(rr, backend="eager", fullgraph=True)(X, UNEQUAL.long())
    loss.backward()
    same((loss.detach(), rr.terms, {name: one.grad for name, one in rr.model.named_parameters()}), expected)


def test_vmapped_models_equal_the_loop():
    rrs = [classic(TwoLayers(), X) for _ in range(2)]
    with torch.no_grad():
        rrs[1].model[0].weight.mul_(0.5)
    stacked, masks = stack_module_state(rrs), torch.stack([real(), UNEQUAL])

    def loss(parameters, buffers, mask):
        return functional_call(rrs[0], (parameters, buffers), (X,), {"mask": mask})[1]

    found = vmap(loss)(*stacked, masks)
    close(found, torch.stack([rr(X, mask=mask)[1].detach() for rr, mask in zip(rrs, masks, strict=True)]))
