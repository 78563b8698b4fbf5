"""Shapes are undone exactly, padding is cropped, crops come back as zeros, dropout and casts are nothing."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.nn.modules import dropout, padding

from racecar import NotReversible
from tests.losses import classic
from tests.rules.common import chain, close, drawn, forward, orthogonal, random, rebuild, rebuild_in

MOVES = {
    "flatten": lambda x: x.flatten(1), "flatten some": lambda x: torch.flatten(x, 1, 2), "Flatten": nn.Flatten(),
    "reshape": lambda x: x.reshape(2, -1), "reshape sizes": lambda x: torch.reshape(x, (6, 20)),
    "view": lambda x: x.view(2, 3, 20), "view_as": lambda x: x.view_as(torch.zeros(4, 30)),
    "ravel": lambda x: x.ravel(), "unflatten": lambda x: x.unflatten(2, (2, 2)), "Unflatten": nn.Unflatten(3, (5, 1)),
    "squeeze": lambda x: x[:, :, None].squeeze(2), "squeeze all": lambda x: x.unsqueeze(1).squeeze(),
    "unsqueeze": lambda x: x.unsqueeze(-1), "None": lambda x: x[..., None, :], "None first": lambda x: x[None],
    "permute": lambda x: x.permute(0, 2, 3, 1), "permute list": lambda x: x.permute([3, -4, 1, 2]),
    "permute by name": lambda x: torch.permute(x, dims=(0, 3, 1, 2)), "transpose": lambda x: x.transpose(1, -1),
    "transpose by name": lambda x: torch.transpose(x, dim0=0, dim1=2),
    "swapaxes": lambda x: x.swapaxes(axis0=1, axis1=2), "swapdims": lambda x: torch.swapdims(x, 1, 3),
    "movedim": lambda x: x.movedim(1, -1), "movedim many": lambda x: torch.movedim(x, (0, 1), (2, 0)),
    "moveaxis": lambda x: x.moveaxis(source=3, destination=1), "T": lambda x: x.flatten(1).T, "mT": lambda x: x.mT,
    "t": lambda x: x.flatten(1).t(), "H": lambda x: x.flatten(1).H, "adjoint": lambda x: x.adjoint(),
    "mH": lambda x: x.mH, "roll": lambda x: x.roll(2, 1), "roll dimension 0": lambda x: x.roll(1, 0),
    "roll many": lambda x: torch.roll(x, (1, -2), dims=(2, 3)), "roll flat": lambda x: x.roll(7),
    "roll by name": lambda x: x.roll(shifts=[3], dims=[-1]), "flip": lambda x: x.flip(1),
    "flip many": lambda x: x.flip(1, 3), "flip list": lambda x: torch.flip(x, [0, 2]),
    "flip by name": lambda x: x.flip(dims=(2,)), "fliplr": torch.fliplr, "rot90": lambda x: torch.rot90(x, 1, (2, 3)),
    "ChannelShuffle": nn.ChannelShuffle(3), "channel_shuffle": lambda x: F.channel_shuffle(x.transpose(1, 2), 2),
    "PixelShuffle": lambda x: F.pixel_shuffle(x.transpose(1, 2), 2),
    "PixelUnshuffle": lambda x: F.pixel_unshuffle(x.transpose(1, 3), 1),
    "expand": lambda x: x[:, None].expand(-1, 4, -1, -1, -1),
    "expand sizes": lambda x: x.unsqueeze(0).expand((2, 2, 3, 4, 5)),
    "expand_as": lambda x: x.unsqueeze(0).expand_as(torch.zeros(4, 2, 3, 4, 5)),
    "expand more": lambda x: x.expand(2, 2, 3, 4, 5), "broadcast_to": lambda x: torch.broadcast_to(x, (3, 2, 3, 4, 5)),
    "repeat": lambda x: x.repeat(1, 2, 1, 3), "repeat more": lambda x: x.repeat(2, 1, 1, 2, 1),
    "repeat list": lambda x: x.repeat([1, 1, 2, 1]), "tile": lambda x: x.tile(2),
    "tile many": lambda x: torch.tile(x, (2, 1, 2)),
    "cat with zeros": lambda x: torch.cat([x, torch.zeros(2, 2, 4, 5)], 1),
    "cat behind ones": lambda x: torch.cat((torch.ones(2, 3, 4, 1), x, torch.ones(2, 3, 4, 2)), dim=-1),
    "concat by name": lambda x: torch.concat(tensors=[torch.ones(1, 3, 4, 5), x]),
    "pad": lambda x: F.pad(x, (1, 2, 3, 4)), "pad one dimension": lambda x: F.pad(x, [2, 0], value=1.5),
    "pad channels": lambda x: F.pad(x, (0, 0, 0, 0, 1, 1), "constant", 3.0),
    "contiguous": lambda x: x.transpose(1, 2).contiguous(), "clone": lambda x: x.clone(),
    "double": lambda x: x.double(), "to": lambda x: x.to(torch.float64), "to the same": lambda x: x.to(x),
    "cpu": lambda x: x.cpu(), "type": lambda x: x.type(torch.float64), "type_as": lambda x: x.type_as(x),
    "Identity": nn.Identity(), "whole": lambda x: x[:, 0:3], "whole with dots": lambda x: x[:2, ..., 0:],
    "F.dropout": lambda x: F.dropout(x, 0.0),
}  # fmt: skip


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
def test_undone_exactly(move):
    """Before the first layer and between two: with orthogonal weights the reverse pass gives the input."""
    torch.manual_seed(0)
    x = random(2, 3, 4, 5)
    first, second = orthogonal(5), orthogonal(forward(chain(move), x).shape[-1])
    for found in rebuild_in(chain(move, second), x, "layerwise", "full"):
        close(found, [x])
    for found in rebuild_in(chain(first, move, second), x, "layerwise", "full"):
        close(found, [x, forward(first, x)])


@drawn
@given(
    st.data(),
    st.lists(st.sampled_from(["permute", "flip", "roll", "flatten", "unsqueeze", "repeat", "pad"]), max_size=5),
)
def test_many_moves(data, kinds):
    """Any moves, one after the other."""
    x = random(*data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=4)))
    moves, rank = [], x.dim()
    for kind in kinds:
        dim = data.draw(st.integers(-rank, rank - 1))
        if kind == "permute":
            order = data.draw(st.permutations(range(rank)))
            moves.append(lambda x, order=order: x.permute(order))
        elif kind == "flatten":
            moves.append(lambda x, dim=dim: x.flatten(0, dim))
            rank -= dim % rank
        elif kind == "unsqueeze":
            moves.append(lambda x, dim=dim: x.unsqueeze(dim))
            rank += 1
        elif kind == "repeat":
            times = [1] * rank
            times[dim] = 2
            moves.append(lambda x, times=times: x.repeat(times))
        elif kind == "pad":
            moves.append(lambda x: F.pad(x, (1, 2), value=1.0))
        else:
            moves.append({"flip": lambda x, dim=dim: x.flip(dim), "roll": lambda x, dim=dim: x.roll(1, dim)}[kind])
    width = forward(chain(*moves), x).shape[-1]
    close(rebuild(chain(*moves, orthogonal(width)), x), [x])


CROPS = {
    "[:, :, 1:-1]": lambda x: x[:, :, 1:-1], "[..., 2:]": lambda x: x[..., 2:],
    "[:, -2:, ..., :3]": lambda x: x[:, -2:, ..., :3], "[1:]": lambda x: x[1:],
    "None inside": lambda x: x[:, None, 1:, :, 1:4], "step 1": lambda x: x[:, :, slice(1, 3, 1)],
    "narrow": lambda x: x.narrow(1, 1, 2), "narrow by name": lambda x: torch.narrow(x, dim=-1, start=2, length=2),
    "narrow from the end": lambda x: x.narrow(2, -3, 2), "negative pad": lambda x: F.pad(x, (-1, -2)),
    "mixed pad": lambda x: F.pad(x, (-1, 2, 1, -1)), "ZeroPad2d": nn.ZeroPad2d((-2, 1, 0, -1)),
}  # fmt: skip


PADDED = ("mixed pad", "ZeroPad2d")


@pytest.mark.parametrize("name", CROPS)
def test_crops_come_back_as_zeros(name):
    """At the model's input, and in mode full; what is padded as well is no part."""
    torch.manual_seed(0)
    crop = CROPS[name]
    x = random(2, 3, 4, 5).requires_grad_()
    kept = torch.autograd.grad(crop(x).sum(), x)[0]
    x = x.detach()
    assert 0 < kept.sum() < kept.numel()
    first, second = orthogonal(5), orthogonal(crop(x).shape[-1])
    close(rebuild(chain(crop, second), x), [x * kept])
    inner = forward(first, x) * kept
    seen = inner if name in PADDED else crop(inner)  # the part that the second layer sees
    close(rebuild(chain(first, crop, second), x, "full"), [(inner - first.bias) @ first.weight, seen])


@pytest.mark.parametrize("name", padding.__all__)
def test_padding_modules_are_cropped(name):
    """Every nn.*Pad*, also the modes that a convolution of its own would fold back."""
    torch.manual_seed(0)
    dims = int(name[-2])
    pad = getattr(nn, name)((1, 2, 0, 1, 2, 1)[: 2 * dims], *([1.5] if name.startswith("Constant") else []))
    x = random(2, 3, *(4, 5, 3)[:dims])
    layer = orthogonal(forward(pad, x).shape[-1])
    close(rebuild(chain(pad, layer), x), [x])
    conv = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dims - 1](3, 3, 1, padding_mode="reflect").double()
    nn.init.orthogonal_(conv.weight)
    close(rebuild(chain(pad, conv), x), [x])


class Token(nn.Module):
    """A learned token in front of the sequence."""

    def __init__(self):
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 1, 4))

    def forward(self, x):
        return torch.cat([self.token.expand(len(x), -1, -1), x], dim=1)


def test_cat_with_a_parameter():
    torch.manual_seed(0)
    x = random(2, 3, 4)
    close(rebuild(chain(Token(), orthogonal(4)), x), [x])
    close(rebuild(chain(orthogonal(4), Token(), orthogonal(4)), x, "full")[0], x)


@pytest.mark.parametrize("name", dropout.__all__)
@pytest.mark.parametrize("training", [True, False])
def test_dropout_is_passed_over(name, training):
    torch.manual_seed(0)
    dims = int(name[-2]) if name[-2].isdigit() else 2
    x, drop = random(4, 3, *(4, 5, 6)[:dims]), getattr(nn, name)(0.4).train(training)
    layer = orthogonal(x.shape[-1])
    close(rebuild(chain(drop, layer), x), [forward(drop, x)])
    model = chain(orthogonal(x.shape[-1]), nn.Tanh(), drop, layer)
    close(rebuild(model, x)[1], torch.tanh(forward(model[:3], x)))


CASTS = {
    "float": lambda x: x.float(), "to": lambda x: x.to(torch.float32), "half and back": lambda x: x.half().float(),
    "to device and dtype": lambda x: x.to("cpu", torch.float32), "bfloat16": lambda x: x.bfloat16().to(torch.float32),
}  # fmt: skip


@pytest.mark.parametrize("cast", CASTS.values(), ids=CASTS)
def test_casts_are_passed_over(cast):
    torch.manual_seed(0)
    model, x = nn.Sequential(chain(cast), orthogonal(4).float()), random(3, 4)
    torch.testing.assert_close(rebuild(model, x)[0].double(), cast(x).double(), rtol=1e-4, atol=1e-4)
    assert classic(model, x)(x)[1] < 1e-3


def test_norms_in_two_layouts():
    """Each is re-applied in its own: Conv → batch norm → flatten → layer norm → Linear."""
    torch.manual_seed(0)
    conv, norm, last = nn.Conv2d(2, 3, 1), nn.LayerNorm(12).double(), nn.Linear(12, 4)
    nn.init.uniform_(norm.weight)
    model, x = chain(conv, nn.BatchNorm2d(3), nn.Tanh(), nn.Flatten(), norm, last), random(5, 2, 2, 2)
    y = ((forward(model, x) - last.bias) @ last.weight).view(5, 3, 2, 2)
    expected = norm(torch.tanh(F.batch_norm(y, None, None, training=True)).flatten(1))
    close(rebuild(model, x)[1], expected)
    full = F.conv_transpose2d(expected.view(5, 3, 2, 2) - conv.bias.view(-1, 1, 1), conv.weight)
    close(rebuild(model, x, "full")[0], full)


def test_channels_last_norm():
    """Conv → permute → layer norm → permute → gelu → pool → Conv, as ConvNeXt has it."""
    torch.manual_seed(0)
    norm, conv, last = nn.LayerNorm(3).double(), nn.Conv2d(2, 3, 1), nn.Conv2d(3, 2, 1)
    nn.init.uniform_(norm.weight)
    model = chain(
        conv, lambda x: x.permute(0, 2, 3, 1), norm, lambda x: x.permute(0, 3, 1, 2), nn.GELU(), nn.AvgPool2d(2), last
    )
    x = random(2, 2, 4, 6)
    y = F.conv_transpose2d(forward(model, x) - last.bias.view(-1, 1, 1), last.weight)
    expected = F.interpolate(F.gelu(norm(y.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)), scale_factor=2)
    close(rebuild(model, x)[1], expected)
    full = F.conv_transpose2d(expected - conv.bias.view(-1, 1, 1), conv.weight)
    close(rebuild(model, x, "full")[0], full)


SELECTS = {
    "[:, 0]": lambda x: x[:, 0], "[:, -1]": lambda x: x[:, -1], "[:, ::2]": lambda x: x[:, ::2],
    "select": lambda x: x.select(1, 2), "list": lambda x: x[:, [0, 2]],
    "index_select": lambda x: x.index_select(1, torch.tensor([2, 0])), "chunk": lambda x: x.chunk(3, 1)[1],
    "split": lambda x: x.split([1, 2], 1)[1], "unbind": lambda x: x.unbind(1)[0],
}  # fmt: skip


@pytest.mark.parametrize("select", SELECTS.values(), ids=SELECTS)
def test_a_part_is_a_new_start(select):
    """What is left of a sequence is a new d; below it the way starts again from the forward activation."""
    torch.manual_seed(0)
    model, x = chain(first := orthogonal(4), nn.Tanh(), select, orthogonal(4)), random(2, 3, 4)
    for mode in ("layerwise", "auto"):
        close(rebuild(model, x, mode), [(forward(model[:2], x) - first.bias) @ first.weight, forward(model[:3], x)])


def test_a_part_in_mode_input():
    """The term of layer 1 alone, or a refusal; never another layer's term instead."""
    model, x = chain(orthogonal(4), nn.Tanh(), lambda x: x[:, 0], orthogonal(4)), random(2, 3, 4)
    try:
        rr = classic(model, x, mode="input")
    except NotReversible:
        return
    assert [entry.name for entry in rr.plan if entry.constrained] == ["0"]
