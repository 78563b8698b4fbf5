"""Greedy layer-wise pretraining equals the same training written by hand."""

import copy
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from racecar.pretrain import greedy
from tests.by_hand import Layer, Net, batch_norm, chain, close, lively, squares, undo_conv, undo_linear, up
from tests.pretrain.common import mlp, mlp_layers, normed, pictures, rows, seeded, state


def by_hand(
    model: nn.Module,
    layers: Callable[[nn.Module, Tensor], list[Layer]],
    own: Sequence[Sequence[str]],
    batches: Iterable[Tensor],
    epochs: int,
    lr: float,
) -> list[tuple[float, float]]:
    """One layer after the other: encode, decode with the same weight, compare, and step on its parameters alone."""
    means = []
    for index, names in enumerate(own):
        parameters = [model.get_parameter(name) for name in names]
        optimiser, each = torch.optim.Adam(parameters, lr), []
        for _ in range(epochs):
            losses = []
            for x in batches:
                layer = layers(model, x)[index]
                loss = squares(layer.d - layer.back(layer.out)) / squares(layer.d).detach()
                gradients = torch.autograd.grad(loss, parameters)
                for parameter, gradient in zip(parameters, gradients, strict=True):
                    parameter.grad = gradient
                optimiser.step()
                losses.append(float(loss.detach()))
            each.append(sum(losses) / len(losses))
        means.append((each[0], each[-1]))
    return means


def test_mlp_by_hand():
    model, batches = mlp(), rows()
    truth = copy.deepcopy(model)
    own = ("0.weight", "0.bias"), ("2.weight", "2.bias"), ("4.weight",)
    means = by_hand(truth, mlp_layers, own, batches, 4, 1e-2)
    done = greedy(model, batches, epochs=4, lr=1e-2)
    close(state(model), state(truth))
    assert [one.layer for one in done] == ["0", "2", "4"], "from the input up"
    close([(one.first, one.last) for one in done], means)
    assert [one.steps for one in done] == [12] * 3
    assert all(one.seconds > 0 for one in done)


def convs() -> nn.Sequential:
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(1, 4, 3, padding=1),
            relu1=nn.ReLU(),
            pool=nn.MaxPool2d(2),
            conv2=nn.Conv2d(4, 6, 3, padding=1),
            relu2=nn.ReLU(),
            flatten=nn.Flatten(),
            head=nn.Linear(6 * 16, 3),
        )
    )


def conv_layers(net: nn.Module, x: Tensor) -> list[Layer]:
    d2 = torch.relu(net.conv1(x))
    d3 = torch.relu(net.conv2(F.max_pool2d(d2, 2)))
    d4 = net.head(d3.flatten(1))
    backs = (
        lambda y: undo_conv(net.conv1, y),
        lambda y: up(torch.relu(undo_conv(net.conv2, y))),
        lambda y: torch.relu(undo_linear(net.head, y)).view_as(d3),
    )
    return chain(("conv1", "conv2", "head"), (x, d2, d3, d4), backs)


def test_convolutions_by_hand():
    model, batches = seeded(convs), pictures()
    truth = copy.deepcopy(model)
    own = ("conv1.weight", "conv1.bias"), ("conv2.weight", "conv2.bias"), ("head.weight",)
    means = by_hand(truth, conv_layers, own, batches, 3, 1e-2)
    done = greedy(model, batches, epochs=3, lr=1e-2)
    close(state(model), state(truth))
    close([(one.first, one.last) for one in done], means)


def normed_layers(net: nn.Module, x: Tensor) -> list[Layer]:
    """The dropout is off; ``net.bn(…)`` moves the running statistics, the reverse pass does not."""
    d2 = torch.relu(net.bn1(net.conv1(x)))
    d3 = torch.tanh(net.bn2(net.conv2(F.max_pool2d(d2, 2))))
    backs = (
        lambda y: undo_conv(net.conv1, y),
        lambda y: up(torch.relu(batch_norm(net.bn1, undo_conv(net.conv2, y)))),
    )
    return chain(("conv1", "conv2"), (x, d2, d3), backs)


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_and_dropout_by_hand(training: bool):
    """Batch statistics, running ones that follow, no dropout, no random number: in whichever mode the model came."""
    model, batches = lively(seeded(normed)), pictures()
    truth = copy.deepcopy(model).train()
    own = ("conv1.weight", "conv1.bias", "bn1.weight", "bn1.bias"), ("conv2.weight", "bn2.weight", "bn2.bias")
    means = by_hand(truth, normed_layers, own, batches, 2, 1e-2)
    random_state = torch.get_rng_state()
    done = greedy(model.train(training), batches, epochs=2, lr=1e-2)
    assert torch.equal(torch.get_rng_state(), random_state)
    close(state(model), state(truth))
    assert int(model.bn1.num_batches_tracked) == 2 * 2 * len(batches)
    close([(one.first, one.last) for one in done], means)


@pytest.mark.parametrize("scale", ["relative", "mean", "sum"])
@pytest.mark.parametrize("fraction", [1.0, 0.4])
def test_scale_and_fraction(scale: str, fraction: float):
    """One step of gradient descent moves the weight by the gradient of that very loss, and by nothing else."""
    model, (x,) = mlp(), rows(1)
    truth = copy.deepcopy(model)
    n = max(1, round(fraction * len(x)))
    layer = mlp_layers(truth, x[:n])[1]
    error = squares(layer.d - layer.back(layer.out))
    by = {"relative": squares(layer.d).detach(), "mean": layer.d.numel(), "sum": n / len(x)}
    weight, bias = torch.autograd.grad(error / by[scale], (truth[2].weight, truth[2].bias))
    options = {"scale": scale, "fraction": fraction, "optimiser": lambda own: torch.optim.SGD(own, lr=0.5)}
    greedy(model, [x], layers="2", **options)
    close(model[2].weight, truth[2].weight - 0.5 * weight)
    close(model[2].bias, truth[2].bias - 0.5 * bias)


def test_residual_block_by_hand():
    """The reverse pass into a branch starts before the join; what follows the join belongs to nobody."""

    def forward(m, x):
        h = torch.tanh(m.a(x))
        return m.head(m.after(torch.tanh(m.c(torch.tanh(m.b(h))) + h)))

    def build():
        parts = {"a": nn.Linear(6, 5), "b": nn.Linear(5, 4), "c": nn.Linear(4, 5), "after": nn.LayerNorm(5)}
        return Net(forward, **parts, head=nn.Linear(5, 3))

    model = seeded(build)

    def layers(m, x):
        d2 = torch.tanh(m.a(x))
        d3 = torch.tanh(m.b(d2))
        branch = m.c(d3)
        joined = m.after(torch.tanh(branch + d2))
        return [
            Layer("a", x, d2, lambda y: undo_linear(m.a, y)),
            Layer("b", d2, d3, lambda y: torch.tanh(undo_linear(m.b, y))),
            Layer("c", d3, branch, lambda y: torch.tanh(undo_linear(m.c, y))),
            Layer("head", joined, m.head(joined), lambda y: m.after(torch.tanh(undo_linear(m.head, y)))),
        ]

    truth, batches = copy.deepcopy(model), rows()
    own = ("a.weight", "a.bias"), ("b.weight", "b.bias"), ("c.weight",), ("head.weight",)
    means = by_hand(truth, layers, own, batches, 2, 1e-2)
    done = greedy(model, batches, epochs=2, lr=1e-2)
    close(state(model), state(truth))
    close([(one.first, one.last) for one in done], means)
