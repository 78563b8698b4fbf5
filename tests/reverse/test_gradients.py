"""The loss is differentiated exactly, through d and through d': small nets of every family, all modes and scales."""

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck

from tests.losses import classic
from tests.networks import NETWORKS, SOME, soak_others

CHAINS = [  # one reverse pass
    "mlp", "mlp_norm", "vgg", "vgg_plain", "bare_weights", "branching", "checkpointed", "tied", "tied_autoencoder",
    "reused", "weight_norm", "spectral_norm", "orthogonal", "frozen", "text", "dict_output",
]  # fmt: skip
JOINED = [
    "resnet_pad", "preact_resnet", "densenet", "unet_bilinear", "mlp_mixer", "functional", "two_inputs",
    "keyword_inputs", "language_model", "gated", "gated_fused", "encoder", "encoder_norm_first", "attention",
    "cross_attention", "scaled_dot_product",
]  # fmt: skip
WRONG_ALONE = {"orthogonal"}
"""torch's own gradient of this parametrisation is not that of finite differences, also without us."""
RIGHT_ALONE = [name for name in CHAINS + JOINED if name not in WRONG_ALONE]
OTHERS = [(name, mode) for name in CHAINS if name in SOME for mode in ("layerwise", "input")]
OTHERS += [(name, "layerwise") for name in JOINED if name in SOME]


def family(name):
    """A float64 model, its positional and its keyword arguments."""
    model, inputs = NETWORKS[name]()
    model.double()
    for module in list(model.modules()):
        for key, child in module.named_children():
            if isinstance(child, nn.ReLU):  # finite differences may step over its kink
                setattr(module, key, nn.GELU())
    if name == "spectral_norm":  # its power iteration moves on with every step in training
        model.eval()

    def double(x):
        return x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x

    if isinstance(inputs, dict):
        return model, (), {key: double(x) for key, x in inputs.items()}
    return model, tuple(map(double, inputs if isinstance(inputs, tuple) else (inputs,))), {}


def wrap(name, mode="auto", **options):
    """rr and its loss as a function of parameters and inputs."""
    model, args, kwargs = family(name)
    rr = classic(model, kwargs or args, mode=mode, **options)
    names = [key for key, p in rr.named_parameters() if p.requires_grad]
    data = [x for x in args if x.is_floating_point()]
    whole = len(data) == len(args)

    def loss(*tensors):
        torch.manual_seed(0)  # dropout
        parameters = dict(zip(names, tensors, strict=False))
        given = tensors[len(names) :] if whole else args
        return torch.func.functional_call(rr, parameters, tuple(given), kwargs)[1]

    start = [p.detach().clone() for p in rr.parameters() if p.requires_grad] + (data if whole else [])
    return rr, loss, [x.requires_grad_() for x in start]


def gradients(loss, start):
    return torch.autograd.grad(loss(*start), start, allow_unused=True, materialize_grads=True)


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)


def check(loss, start):
    """Finite differences along two directions of all tensors at once, each as long as its gradient is short, so that
    none is lost beside another; in steps so small that they meet no kink of a maximum."""
    grads = gradients(loss, start)
    largest = max(g.norm() for g in grads)
    random = torch.Generator().manual_seed(0)
    for _ in range(2):
        ways = [
            torch.randn(x.shape, generator=random, dtype=x.dtype) * (largest / g.norm().clamp(min=largest / 100))
            for x, g in zip(start, grads, strict=True)
        ]
        with torch.no_grad():
            up, down = (loss(*(x + e * way for x, way in zip(start, ways, strict=True))) for e in (1e-7, -1e-7))
        expected = sum((g * way).sum() for g, way in zip(grads, ways, strict=True))
        assert abs((up - down) / 2e-7 - expected) < 1e-4 * largest + 1e-7 * up


@pytest.mark.parametrize("name", soak_others(RIGHT_ALONE))
def test_mean(name):
    """Also on a part of the batch, and with one λ per layer."""
    scale = ("mean", "ratio")[RIGHT_ALONE.index(name) % 2]
    _, loss, start = wrap(name, scale=scale, fraction=0.5, weight={"*": 3.0})
    check(loss, start)


@pytest.mark.parametrize("name", soak_others(CHAINS + JOINED))
def test_sum_and_relative(name):
    check_sum_and_relative(name, "auto")


@pytest.mark.parametrize("name, mode", OTHERS)
def test_sum_and_relative_in_other_modes(name, mode):
    """In mode "full" a chain has the loss of "auto", see tests/plan/test_layers."""
    check_sum_and_relative(name, mode)


def check_sum_and_relative(name, mode):
    """The denominator of "relative" is detached: its gradient is that of "sum" with weight 1 / Σd² for each layer."""
    rr, loss, start = wrap(name, mode, scale="relative")
    value, actual = loss(*start), gradients(loss, start)
    relative = dict(rr.terms)
    rr.scale = "sum"
    loss(*start)
    weight = {key: float(relative[key] / term) for key, term in rr.terms.items()}
    assert all(w > 0 for w in weight.values())
    if name not in WRONG_ALONE:
        check(loss, start)
        assert any(g.abs().max() > 1e-3 for g in gradients(loss, start))
    # Below a head of weight 0 the reverse pass would start elsewhere, so in mode "input" the others keep a weight.
    others = {entry.name: 1.0 for entry in rr.plan} if mode == "input" else {}
    rr.weight = others | weight
    close(loss(*start), value)
    close(actual, gradients(loss, start))


@pytest.mark.soak
@pytest.mark.parametrize("mode", ["full", "layerwise", "input"])
def test_every_element(mode):
    """Not only along random directions: the whole Jacobian of a net with all that a chain can have."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3, padding=1, padding_mode="reflect"), nn.BatchNorm2d(2), nn.PReLU(2), nn.MaxPool2d(2),
        nn.ConvTranspose2d(2, 2, 2, stride=2), nn.GroupNorm(1, 2), nn.SiLU(), nn.AvgPool2d(2), nn.Flatten(),
        nn.Linear(8, 3), nn.LayerNorm(3), nn.Softplus(), nn.Linear(3, 2),
    ).double()  # fmt: skip
    x = torch.randn(3, 1, 4, 4, dtype=torch.float64, requires_grad=True)
    rr = classic(model, x, mode=mode, scale="sum", input_activation="tanh")
    names = [name for name, _ in rr.named_parameters()]
    start = [p.detach().clone().requires_grad_() for p in rr.parameters()]

    def loss(x, *tensors):
        return torch.func.functional_call(rr, dict(zip(names, tensors, strict=True)), (x,))[1]

    assert gradcheck(loss, (x, *start))
