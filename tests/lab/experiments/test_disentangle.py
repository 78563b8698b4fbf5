"""Disentangle: its codes, losses, regularisers and readers, worked out by hand."""

import math

import pytest
import torch
from torch.nn import functional as F

from racecar import Racecar
from racecar_lab.experiments.disentangle import codes
from racecar_lab.experiments.disentangle.losses import Losses
from racecar_lab.experiments.disentangle.readers import inverted, reader, run_backwards
from racecar_lab.experiments.disentangle.regularisers import VARIANTS, relative_error
from racecar_lab.networks.infogan import mirrored
from racecar_lab.stage import Stage
from racecar_lab.training.recipe import Batch
from tests.lab.experiments.disentangle_cases import DISENTANGLE, config, inputs, networks

# Codes


def test_codes_are_drawn_evenly():
    """The k-th tenth of the normal distribution is class k; all else is uniform in [-1, 1]."""
    middles = torch.special.ndtri((torch.arange(10) + 0.5) / 10)
    found, noise = codes.draw(middles.unsqueeze(1).repeat(1, 65))
    assert found.c1.tolist() == list(range(10))
    torch.testing.assert_close(found.c23[:, 0], (torch.arange(10) + 0.5) / 5 - 1)
    assert noise.shape == (10, 62)
    assert codes.draw(torch.full((1, 65), 40.0))[0].c1.tolist() == [9]


@pytest.mark.parametrize("code, width", [("one-hot", 74), ("number", 65)])
def test_codes_are_read_as_they_were_put_in(code, width):
    drawn, x = inputs(code, 50)
    assert x.shape == (50, width) == (50, codes.inputs_count(code))
    found = codes.from_inputs(x, code)
    assert torch.equal(found.c1, drawn.c1)
    assert torch.equal(found.c23, drawn.c23)
    assert codes.code_weights(code).tolist() == pytest.approx([1.33] * (width - 64) + [1, 1] + [0] * 62)


def test_a_number_is_read_as_the_nearest():
    x = torch.tensor([[-3.0], [-0.9], [0.1], [0.12], [5.0]])
    assert codes.from_inputs(x, "number").c1.tolist() == [0, 0, 5, 5, 9]


def test_the_loss_of_readings_by_hand():
    readings = torch.zeros(2, 12)
    readings[0, 3], readings[:, 10], readings[1, 11] = math.log(9), 0.5, 1.0
    wanted = codes.Codes(torch.tensor([3, 0]), torch.tensor([[0.5, 0.0], [0.0, 0.0]]))
    cross_entropy = (-math.log(9 / 18) - math.log(1 / 10)) / 2
    assert float(codes.readings_loss(readings, wanted)) == pytest.approx(cross_entropy + (0 + 0.25 + 1) / 2)


# Losses and regularisers


def test_losses_by_hand():
    """Non-saturating; the discriminator's loss leaves the generator alone."""
    nets, latent = networks(norm=False), torch.randn(4, codes.DRAWS)
    x, losses = torch.rand(4, 1, 28, 28), Losses(config())
    drawn, noise = codes.draw(latent)
    fake, batch = nets["generator"](codes.to_inputs(drawn, noise, "one-hot")), Batch(x, torch.zeros(4), latent)
    d = nets["discriminator"]
    torch.testing.assert_close(
        losses.generator(nets["generator"], batch, nets), -torch.log(torch.sigmoid(d(fake))).mean()
    )
    loss = losses.discriminator(d, batch, nets)
    wanted = -torch.log(torch.sigmoid(d(x))).mean() - torch.log(1 - torch.sigmoid(d(fake))).mean()
    torch.testing.assert_close(loss, wanted)
    loss.backward()
    assert all(p.grad is None for p in nets["generator"].parameters())


@pytest.mark.parametrize("code", ["one-hot", "number"])
@pytest.mark.parametrize("norm", [True, False])
def test_free_is_rr1_without_shared_weights(code, norm):
    """A mirror image with the generator's weights, transposed, rebuilds what the reverse pass rebuilds. The loss is the
    same, and RR1's gradient is the sum of those of the two ways."""
    g = networks(code=code, norm=norm)["generator"].double()
    mirror = mirrored(codes.inputs_count(code), norm, 6, (2, 3)).double()
    forth, back = ([m for m in net if hasattr(m, "weight") and m.weight.dim() > 1] for net in (g, mirror))
    for here, there in zip(forth, reversed(back), strict=True):
        here.bias.data.zero_()
        there.bias.data.zero_()
        there.weight.data.copy_(turned(here.weight))
    x, width = inputs(code, 8)[1].double(), codes.inputs_count(code) - codes.NOISE
    rr = Racecar(g, x, mode="input", **DISENTANGLE.reverse(config(code=code)))
    picture, loss = rr(x)
    torch.testing.assert_close(mirror(picture), rr.reconstruct(x)[0])
    shared = torch.autograd.grad(loss, [layer.weight for layer in forth])
    weights = codes.code_weights(code).double()
    found = relative_error(x, mirror(g(x)), weights)
    torch.testing.assert_close(found, loss)
    difference = (x - mirror(g(x)))[:, :width]
    torch.testing.assert_close(found, (weights[:width] * difference**2).sum() / (x[:, :width] ** 2).sum())
    apart = torch.autograd.grad(found, [layer.weight for layer in (*forth, *reversed(back))])
    for whole, forward, backward in zip(shared, apart[: len(forth)], apart[len(forth) :], strict=True):
        torch.testing.assert_close(whole, forward + turned(backward))


def turned(weight):
    """The weight of the layer that leads back: a transposed convolution has its convolution's."""
    return weight.T if weight.dim() == 2 else weight


def test_infogan_reads_the_discriminators_features():
    nets, (drawn, x) = networks("InfoGAN"), inputs("one-hot")
    module = VARIANTS["InfoGAN"].regularised(nets, config()).eval()
    nets.eval()
    picture, loss = module(x)
    readings = nets["head"](nets["discriminator"].features(picture))
    wanted = F.cross_entropy(readings[:, :10], drawn.c1) + (readings[:, 10:] - drawn.c23).square().sum(1).mean()
    torch.testing.assert_close(loss, wanted)


@pytest.mark.parametrize("name, own", [("InfoGAN", "head"), ("Free", "mirror")])
def test_the_generators_optimiser_trains_a_variants_own_network(name, own):
    """And nothing of the discriminator."""
    nets = networks(name)
    trained = set(VARIANTS[name].regularised(nets, config()).parameters())
    assert trained == {*nets["generator"].parameters(), *nets[own].parameters()}


# Readers


@pytest.mark.parametrize("norm", [True, False])
def test_read_backwards_as_the_library_rebuilds(norm):
    nets, (_, x) = networks(norm=norm), inputs("one-hot", 8)
    g = nets["generator"]
    rebuilt = Racecar(g.train(), x, mode="full").reconstruct(x)[0]
    torch.testing.assert_close(run_backwards(g, "one-hot")(g(x)), rebuilt)
    found = reader(config(norm=norm), nets)(g(x))
    assert torch.equal(found.c1, rebuilt[:, :10].argmax(1))
    torch.testing.assert_close(found.c23, rebuilt[:, 10:12])


def test_read_by_a_network_of_its_own():
    x = torch.rand(3, 1, 28, 28)
    nets = networks("InfoGAN").eval()
    assert torch.equal(reader(config(), nets)(x).c23, nets["head"](nets["discriminator"].features(x))[:, 10:])
    nets = networks("Free").eval()
    assert torch.equal(reader(config(), nets)(x).c23, nets["mirror"](x)[:, 10:12])
    encoder = DISENTANGLE.networks(config(), Stage("E", after="A"), networks()).eval()
    assert torch.equal(reader(config(), encoder)(x).c1, encoder["encoder"](x)[:, :10].argmax(1))


def test_read_by_steps_on_the_input():
    """Where the picture is a linear function of the input, they lead to it."""
    linear = torch.nn.Sequential(torch.nn.Linear(74, 784, bias=False), torch.nn.Unflatten(1, (1, 28, 28)))
    torch.nn.init.orthogonal_(linear[0].weight)
    drawn, x = inputs("one-hot")
    found = inverted(config(inversion_steps=200), linear)(linear(x))
    assert torch.equal(found.c1, drawn.c1)
    torch.testing.assert_close(found.c23, drawn.c23, atol=0.05, rtol=0)
