"""torch.func: many models at once, gradients as functions, and the loss as a pure function."""

import copy
import itertools

import pytest
import torch
from torch.func import functional_call, grad, stack_module_state, vmap

from racecar import NothingToReverse
from racecar.reverse.terms import GRADIENTS
from tests.losses import classic, classic_loss
from tests.networks import NETWORKS
from tests.steps import assert_same, step

EXACT = {"rtol": 1e-3, "atol": 1e-4}
pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop because")  # torch's own, attention in vmap
STACKED = "mlp mlp_norm vgg vgg_plain functional bare_weights text language_model gated scaled_dot_product reused tied"


def build(name, count=3, **settings):
    """`count` models of one kind with weights and data of their own; without dropout, which vmap draws otherwise."""
    models, data = zip(*(NETWORKS[name](seed) for seed in range(count)), strict=True)
    return [classic(model.train(name != "functional"), data[0], **settings) for model in models], data


def loss_of(rr):
    """The loss as a function of parameters, buffers and data."""
    return lambda parameters, buffers, x: functional_call(rr, (parameters, buffers), (x,))[1]


WAYS = [*zip(STACKED.split(), itertools.cycle([1.0, 0.5]), itertools.cycle(GRADIENTS), strict=False)]


@pytest.mark.parametrize("name, fraction, gradient", WAYS)
def test_stacked_models_equal_the_loop(name, fraction, gradient):
    rrs, data = build(name, fraction=fraction, gradient=gradient)
    stacked = stack_module_state(rrs)
    together = loss_of(rrs[0])
    losses = vmap(together, (0, 0, 0))(*stacked, torch.stack(data))
    grads = vmap(grad(together), (0, 0, 0))(*stacked, torch.stack(data))
    for i, (rr, x) in enumerate(zip(rrs, data, strict=True)):
        rr.zero_grad()
        _, loss = rr(x)
        loss.backward()
        torch.testing.assert_close(losses[i], loss.detach(), **EXACT)
        for key, parameter in rr.named_parameters():
            expected = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            torch.testing.assert_close(grads[key][i], expected, **EXACT)


def test_stacked_models_change_their_running_statistics_as_the_loop():
    rrs, data = build("vgg")
    parameters, buffers = stack_module_state(rrs)
    vmap(loss_of(rrs[0]), (0, 0, None))(parameters, buffers, data[0])
    for i, rr in enumerate(rrs):
        rr(data[0])
        for key, buffer in rr.named_buffers():
            torch.testing.assert_close(buffers[key][i], buffer, **EXACT)


@pytest.mark.parametrize("mode, scale", [("full", "sum"), ("layerwise", "mean"), ("input", "relative")])
def test_modes_under_vmap(mode, scale):
    rrs, data = build("vgg_plain", mode=mode, scale=scale)
    losses = vmap(loss_of(rrs[0]), (0, 0, None))(*stack_module_state(rrs), data[0])
    torch.testing.assert_close(losses, torch.stack([rr(data[0])[1] for rr in rrs]), **EXACT)


@pytest.mark.parametrize("name", ["vgg_plain", "scaled_dot_product", "text"])
def test_gradients_of_single_samples(name):
    (rr,), (x,) = build(name, 1)
    state = dict(rr.named_parameters()), dict(rr.named_buffers())
    each = vmap(grad(lambda p, one: loss_of(rr)(p, state[1], one[None])), (None, 0))(state[0], x)
    for i in range(len(x)):
        made = torch.autograd.grad(rr(x[i : i + 1])[1], list(state[0].values()), allow_unused=True)
        for key, expected in zip(state[0], made, strict=True):
            assert expected is None or torch.testing.assert_close(each[key][i], expected, **EXACT) is None


@pytest.mark.parametrize("name", ["vgg", "attention", "gated", "weight_norm"])
def test_grad_is_backward(name):
    (rr,), (x,) = build(name, 1)
    rr(x)[1].backward()
    made = grad(loss_of(rr))({k: p.detach() for k, p in rr.named_parameters()}, dict(rr.named_buffers()), x)
    for key, parameter in rr.named_parameters():
        torch.testing.assert_close(made[key], torch.zeros_like(made[key]) if parameter.grad is None else parameter.grad)


def test_a_racecar_is_as_usable_as_before():
    """Terms computed inside a transform must not prevent a later copy of the Racecar."""
    rrs, data = build("mlp")
    vmap(grad(loss_of(rrs[0])), (0, 0, None))(*stack_module_state(rrs), data[0])
    other = copy.deepcopy(rrs[0])
    assert torch.equal(other(data[0])[1], rrs[0](data[0])[1])


TWINS = {
    "vgg": {},
    "resnet_pad": {"fraction": 0.5, "mode": "layerwise"},
    "mlp": {"mode": "input", "input_activation": "tanh", "scale": "sum"},
    "mlp_norm": {"mode": "full", "weight": {"*": 0.5, "0": torch.tensor([1.0, 0, 0, 2, 0, 0])}, "scale": "mean"},
    "two_inputs": {"fraction": 0.5},
    "keyword_inputs": {"weight": 0.1},
    "spectral_norm": {},
    "text": {},
}


class Pure(torch.nn.Module):
    """The pure function in the place of a Racecar."""

    def __init__(self, model, **settings):
        super().__init__()
        self.model, self.settings, self.terms = model, settings, {}

    def forward(self, *args, **kwargs):
        return classic_loss(self.model, args, kwargs, **self.settings)


@pytest.mark.parametrize("name", TWINS)
def test_the_pure_function_is_the_modules_twin(name):
    model, inputs = NETWORKS[name]()
    rr = classic(copy.deepcopy(model), inputs, **TWINS[name])
    expected, made = step(rr, inputs), step(Pure(model, **TWINS[name]), inputs)
    for term in rr.terms:
        del expected.values[term]
    for name, _ in rr.reverse_statistics.named_buffers(prefix="reverse_statistics"):
        del expected.buffers[name]
    assert_same(made, expected)


def test_the_pure_function_keeps_nothing():
    model, x = NETWORKS["vgg"]()
    keys = set(vars(model))
    for _ in range(2):
        classic_loss(model, (x,))
    assert set(vars(model)) == keys
    assert int(model.features[1].num_batches_tracked) == 2


def test_the_pure_function_refuses_what_the_module_refuses():
    with pytest.raises(NothingToReverse):
        classic_loss(torch.nn.ReLU(), torch.rand(2, 2))
    with pytest.raises(ValueError, match="scale"):
        classic_loss(*NETWORKS["mlp"](), scale="huge")


def test_the_pure_function_under_functional_call():
    """With other parameters than the model's own, as in meta learning."""
    model, x = NETWORKS["vgg_plain"]()
    other = NETWORKS["vgg_plain"](seed=1)[0]

    state = {f"model.{key}": value for key, value in other.state_dict().items()}
    made = functional_call(Pure(model), state, (x,))
    torch.testing.assert_close(made, classic(other, x)(x))
