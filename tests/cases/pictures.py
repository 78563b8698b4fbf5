"""Between two convolutions, or a convolution and a linear layer: pooling, norms, activations, shapes."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.by_hand import Layer, Net, batch_norm, chain, undo_conv, undo_linear, up
from tests.cases import case, conv, images, pool


def two_convs(between: list[nn.Module], forward: Callable, after: Callable, first: Callable = lambda y: y):
    """conv → between → conv: `forward` gives (d2, what the second conv sees), `after` ends the step into d2, and
    `first` begins the step from d2 into the first conv."""
    net = nn.Sequential(conv(), *between, conv(3, 2))

    def layers(m: nn.Module, x: Any) -> list[Layer]:
        d2, seen = forward(m, m[0](x))
        backs = (lambda y: undo_conv(m[0], first(y)), lambda y: after(m, undo_conv(m[-1], y)))
        return chain(("0", str(len(m) - 1)), (x, d2, m[-1](seen)), backs)

    return net, images(), layers


@case
def pool_after_activation():
    def forward(m, y):
        return torch.relu(y), pool(torch.relu(y))

    return two_convs([nn.ReLU(), nn.MaxPool2d(2)], forward, lambda m, y: up(torch.relu(y)))


@case
def pool_before_activation():
    """The activation's output is d2, already pooled: into it nothing is up-sampled, from it everything."""
    return two_convs(
        [nn.MaxPool2d(2), nn.Tanh()], lambda m, y: (torch.tanh(pool(y)),) * 2, lambda m, y: torch.tanh(y), up
    )


@case
def conv_norm_pool_activation():
    """Norm and activation are re-applied in forward order; the pool between them is undone on the way into the conv."""

    def forward(m, y):
        return (torch.tanh(pool(batch_norm(m[1], y))),) * 2

    def after(m, y):
        return torch.tanh(batch_norm(m[1], y))

    return two_convs([nn.BatchNorm2d(3), nn.MaxPool2d(2), nn.Tanh()], forward, after, up)


@case
def conv_activation_norm_pool():
    def forward(m, y):
        d2 = batch_norm(m[2], torch.tanh(y))
        return d2, F.avg_pool2d(d2, 2)

    return two_convs(
        [nn.Tanh(), nn.BatchNorm2d(3), nn.AvgPool2d(2)], forward, lambda m, y: up(batch_norm(m[2], torch.tanh(y)))
    )


@case
def pool_on_both_sides():
    def forward(m, y):
        d2 = torch.tanh(pool(y))
        return d2, pool(d2)

    between = [nn.MaxPool2d(2), nn.Tanh(), nn.MaxPool2d(2)]
    return two_convs(between, forward, lambda m, y: up(torch.tanh(y)), up)


@case
def activation_pool_norm():
    """The norm's output is d2: pooled, so everything is re-applied at that size."""

    def forward(m, y):
        return (batch_norm(m[3], pool(torch.tanh(y))),) * 2

    def after(m, y):
        return batch_norm(m[3], torch.tanh(y))

    return two_convs([nn.Tanh(), nn.MaxPool2d(2), nn.BatchNorm2d(3)], forward, after, up)


@case
def norm_of_one_size():
    """A norm over whole pictures cannot be applied before up-sampling: it knows one size alone."""

    def forward(m, y):
        return m[1](y), pool(m[1](y))

    return two_convs([nn.LayerNorm([3, 8, 8]), nn.MaxPool2d(2)], forward, lambda m, y: m[1](up(y)))


@case
def norm_alone():
    return two_convs(
        [nn.BatchNorm2d(3)], lambda m, y: (batch_norm(m[1], y),) * 2, lambda m, y: batch_norm(m[1], y)
    )  # fmt: skip


@case
def nothing_between():
    return two_convs([], lambda m, y: (y, y), lambda m, y: y)


@case
def upsampling_is_averaged():
    return two_convs(
        [nn.Tanh(), nn.Upsample(scale_factor=2)],
        lambda m, y: (torch.tanh(y), up(torch.tanh(y))),
        lambda m, y: F.avg_pool2d(torch.tanh(y), 2),
    )


@case
def separate_padding_is_cropped():
    return two_convs(
        [nn.Tanh(), nn.ReflectionPad2d(1)],
        lambda m, y: (torch.tanh(y), F.pad(torch.tanh(y), (1, 1, 1, 1), mode="reflect")),
        lambda m, y: torch.tanh(y[..., 1:-1, 1:-1]),
    )


# --- shapes


def conv_then_linear(between: list[nn.Module], width: int, forward: Callable, after: Callable, first: Callable):
    net = nn.Sequential(conv(), *between, nn.Linear(width, 4))

    def layers(m: nn.Module, x: Any) -> list[Layer]:
        d2, seen = forward(m, m[0](x))
        backs = (lambda y: undo_conv(m[0], first(y)), lambda y: after(m, undo_linear(m[-1], y)))
        return chain(("0", str(len(m) - 1)), (x, d2, m[-1](seen)), backs)

    return net, images(), layers


@case
def flatten_after_pool():
    def forward(m, y):
        return torch.relu(y), pool(torch.relu(y)).flatten(1)

    between = [nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    return conv_then_linear(between, 48, forward, lambda m, y: up(torch.relu(y.view(3, 3, 4, 4))), lambda y: y)


@case
def flatten_before_activation():
    """d2 is flat, and takes the conv's form only on the way into the conv."""

    def forward(m, y):
        return (torch.tanh(y.flatten(1)),) * 2

    between = [nn.Flatten(), nn.Tanh()]
    return conv_then_linear(between, 192, forward, lambda m, y: torch.tanh(y), lambda y: y.view(3, 3, 8, 8))


@case
def norms_on_both_sides_of_flatten():
    """Each norm sees the layout that it was made for."""
    between = [nn.BatchNorm2d(3), nn.Tanh(), nn.Flatten(), nn.BatchNorm1d(192)]

    def both(m, y):
        return batch_norm(m[4], torch.tanh(batch_norm(m[1], y.view(3, 3, 8, 8))).flatten(1))

    return conv_then_linear(between, 192, lambda m, y: (both(m, y),) * 2, both, lambda y: y.view(3, 3, 8, 8))


@case
def global_mean():
    """(N, C) goes back to (N, C, 1, 1), is normalised there, and is broadcast afterwards."""
    net = Net(
        lambda m, x: m.fc(torch.tanh(m.bn(m.conv(x))).mean((2, 3))),
        conv=conv(),
        bn=nn.BatchNorm2d(3),
        fc=nn.Linear(3, 4),
    )

    def layers(m, x):
        d2 = torch.tanh(batch_norm(m.bn, m.conv(x)))

        def into_d2(y):
            return torch.tanh(batch_norm(m.bn, undo_linear(m.fc, y)[..., None, None])).expand(3, 3, 8, 8)

        return chain(("conv", "fc"), (x, d2, m.fc(d2.mean((2, 3)))), (lambda y: undo_conv(m.conv, y), into_d2))

    return net, images(), layers


@case
def global_mean_before_norm():
    """As in ConvNeXt's head: d2 has lost the picture's dimensions, which come back on the way into the conv."""
    parts = {"conv": conv(), "norm": nn.LayerNorm(3), "fc": nn.Linear(3, 4)}
    net = Net(lambda m, x: m.fc(m.norm(torch.tanh(m.conv(x)).mean((2, 3)))), **parts)

    def layers(m, x):
        d2 = m.norm(torch.tanh(m.conv(x)).mean((2, 3)))
        backs = (
            lambda y: undo_conv(m.conv, y[..., None, None].expand(3, 3, 8, 8)),
            lambda y: m.norm(torch.tanh(undo_linear(m.fc, y))),
        )
        return chain(("conv", "fc"), (x, d2, m.fc(d2)), backs)

    return net, images(), layers


@case
def channels_last_norm():
    """As in ConvNeXt: d2 is the norm's output, in the layout of the norm."""
    net = Net(
        lambda m, x: m.fc(m.norm(m.conv(x).permute(0, 2, 3, 1))), conv=conv(), norm=nn.LayerNorm(3), fc=nn.Linear(3, 4)
    )

    def layers(m, x):
        d2 = m.norm(m.conv(x).permute(0, 2, 3, 1))
        backs = (lambda y: undo_conv(m.conv, y.permute(0, 3, 1, 2)), lambda y: m.norm(undo_linear(m.fc, y)))
        return chain(("conv", "fc"), (x, d2, m.fc(d2)), backs)

    return net, images(), layers
