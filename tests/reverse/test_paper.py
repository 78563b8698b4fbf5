"""The paper's equations, and what its theory promises."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.by_hand import batch_norm, chain, close, lively, rebuild, squares, undo_conv, up
from tests.losses import classic
from tests.networks import NETWORKS


@pytest.mark.parametrize("mode", ["auto", "full", "layerwise", "input"])
@pytest.mark.parametrize("bias", [False, True])
def test_linear_layer_is_orthogonality_along_the_data(mode: str, bias: bool):
    """L = ‖(MᵀM − I) D‖²_F with the data in the columns of D; the bias cancels."""
    torch.manual_seed(0)
    layer, data = nn.Linear(7, 4, bias=bias).double(), torch.randn(5, 7, dtype=torch.float64)
    rr = classic(layer, data, mode=mode, scale="sum")
    _, loss = rr(data)
    matrix = layer.weight
    expected = squares((matrix.T @ matrix - torch.eye(7, dtype=torch.float64)) @ data.T)
    close(loss, expected)
    close(torch.autograd.grad(loss, matrix)[0], torch.autograd.grad(expected, matrix)[0])


def test_the_authors_lambda_is_half_ours():
    """Their loss is λ · ½ Σ (d − d')² over the whole batch."""
    layer, data = nn.Linear(4, 2, bias=False).double(), torch.rand(3, 4, dtype=torch.float64) * 255
    matrix = layer.weight
    _, loss = classic(layer, data, scale="sum", weight=1e-5 / 2)(data)
    close(loss, 1e-5 * 0.5 * squares(data - data @ matrix.T @ matrix))


# --- the three-layer example --------------------------------------------------------------------------------------

WEIGHTS = {"conv1": 0.5, "conv2": 2.0, "conv3": 3.0}
ACTIVATIONS = {"None": (None, lambda x: x), "relu": ("relu", torch.relu), "callable": (torch.sin, torch.sin)}


def example(net: nn.Module, x: Tensor, input_activation) -> list:
    """d2 → MP → C2 + b2 → BN2 → tanh → d3 → …, and its reverse pass D3 → BN2 → tanh → UP → d3' → … of the paper."""
    d2 = torch.relu(batch_norm(net.bn1, net.conv1(x)))
    d3 = torch.tanh(batch_norm(net.bn2, net.conv2(F.max_pool2d(d2, 2))))
    d4 = torch.sigmoid(batch_norm(net.bn3, net.conv3(F.max_pool2d(d3, 2))))
    backs = (
        lambda y: input_activation(undo_conv(net.conv1, y)),
        lambda y: up(torch.relu(batch_norm(net.bn1, undo_conv(net.conv2, y)))),
        lambda y: up(torch.tanh(batch_norm(net.bn2, undo_conv(net.conv3, y)))),
    )
    return chain(tuple(WEIGHTS), (x, d2, d3, d4), backs)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("mode", ["auto", "full", "layerwise", "input"])
def test_three_layer_example(mode: str, training: bool, activation: str):
    net, x = NETWORKS["paper_net"]()
    net, x = lively(net).train(training), (x.double() - 0.3).requires_grad_()
    given, by_hand = ACTIVATIONS[activation]
    layers = example(net, x, by_hand)
    rebuilt = rebuild(layers, layerwise=mode == "layerwise")
    counted = layers[:1] if mode == "input" else layers
    terms = {layer.name: squares(layer.d - rebuilt[layer.name]) for layer in counted}
    expected = sum(WEIGHTS[name] * term for name, term in terms.items())
    wanted = [x, *net.parameters()]

    # the gradient first: the model's own pass will move the running statistics
    gradient = torch.autograd.grad(expected, wanted, retain_graph=True, allow_unused=True)
    rr = classic(net, x.detach(), mode=mode, scale="sum", weight=WEIGHTS, input_activation=given)
    output, loss = rr(x)

    close(output, layers[-1].out)
    close(loss, expected)
    close(rr.terms, {name: term.detach() for name, term in terms.items()})
    assert list(rr.terms) == list(terms)
    assert all(not term.requires_grad for term in rr.terms.values())
    for ours, theirs in zip(torch.autograd.grad(loss, wanted, allow_unused=True), gradient, strict=True):
        close(ours, theirs)
    # BN3 and the last sigmoid are only passed forward: their parameters still feel the loss through d4
    assert gradient[-1] is not None


# --- the theory ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [1, 3])
@pytest.mark.parametrize("scale", ["sum", "relative"])
def test_loss_alone_finds_the_dominant_features(rank: int, scale: str):
    """A linear layer ends with singular values 1 and the top-r eigenvectors of D Dᵀ as right singular vectors."""
    torch.manual_seed(rank)
    axes = torch.linalg.qr(torch.randn(8, 8, dtype=torch.float64))[0]
    spectrum = 0.6 ** torch.arange(8, dtype=torch.float64)
    data = torch.randn(40, 8, dtype=torch.float64) * spectrum @ axes.T
    layer = nn.Linear(8, rank, bias=False).double()
    rr = classic(layer, data, scale=scale)
    optimiser = torch.optim.LBFGS(layer.parameters(), max_iter=500, tolerance_grad=1e-10, line_search_fn="strong_wolfe")

    def step() -> Tensor:
        optimiser.zero_grad()
        loss = rr(data)[1]
        loss.backward()
        return loss

    optimiser.step(step)
    _, values, right = torch.linalg.svd(layer.weight.detach(), full_matrices=False)
    top = torch.linalg.eigh(data.T @ data).eigenvectors[:, -rank:]
    cosines = torch.linalg.svdvals(right @ top)  # of the principal angles between the two subspaces
    close(values, torch.ones(rank, dtype=torch.float64), 1e-3)
    assert cosines.min() > 0.999, cosines
