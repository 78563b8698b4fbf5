"""`rr.reverse(y)`: the model run backwards from any output, against passes by hand and what algebra demands."""

import copy
import pickle
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import orthogonal, weight_norm

from racecar import Racecar
from tests.by_hand import Net, batch_norm, rebuild, undo_conv, undo_linear, up
from tests.cases import CASES
from tests.networks import NETWORKS, call
from tests.rules.common import chain, close, drawn, random, same_product

ONE_WAY = [
    "vgg", "vgg_plain", "mlp", "mlp_norm", "paper_net", "bare_weights", "branching", "checkpointed", "tied",
    "tied_autoencoder", "reused", "weight_norm", "orthogonal", "frozen", "text",
]  # fmt: skip
"""The networks that have one output and one way back from it."""


def refuse(*_):
    raise AssertionError("the model was run")


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", ONE_WAY)
def test_of_the_models_output_it_is_what_reconstruct_rebuilds(name, training):
    model, x = NETWORKS[name]()
    rr = Racecar(model, x, mode="full", weight=1.0)
    for _ in range(2):
        call(rr, x)  # the reverse data's statistics are recorded, for evaluation
    rr.train(training)
    state = {key: value.clone() for key, value in model.state_dict().items()}
    rebuilt = next(one for one in call(rr.reconstruct, x) if one is not None)
    torch.manual_seed(0)
    with torch.no_grad():
        y = call(copy.deepcopy(model), x)
    torch.testing.assert_close(rr.reverse(y), rebuilt, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(dict(model.state_dict()), state, rtol=0, atol=0)


ONLY_FROM_A_LAYER = {
    "softmax_at_the_end", "log_softmax_at_the_end", "activation_and_softmax_at_the_end", "pooling_at_the_end",
    "dropout_is_passed_over",
}  # fmt: skip
"""Cases in which mode "full" starts above a softmax or a pooling, which no output tells, or above random numbers."""


@pytest.mark.parametrize("name", [name for name in CASES if "join" not in name])
def test_the_cases_by_hand(name):
    """From the output of the last layer, and from that of the model."""
    model, x, by_hand = CASES[name]()
    rr = Racecar(model, x)
    layers = by_hand(model, copy.deepcopy(x))
    expected = rebuild(layers, layerwise=False)[layers[0].name]
    with torch.no_grad():
        if name != "hugging_face_conv1d":  # its layer works on (N · T, C)
            close(rr.reverse(layers[-1].out, start=layers[-1].name), expected)
        if name not in ONLY_FROM_A_LAYER:
            close(rr.reverse(call(model, copy.deepcopy(x))), expected)


def pooled():
    conv = (nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))
    return chain(*conv, nn.Conv2d(4, 5, 3), nn.Tanh(), nn.Flatten(), nn.Linear(20, 7))


def pooled_by_hand(model: nn.Sequential, y: Tensor) -> Tensor:
    d3 = torch.tanh(undo_linear(model[7], y).view(-1, 5, 2, 2))
    return undo_conv(model[0], up(F.relu(batch_norm(model[1], undo_conv(model[4], d3)))))


@pytest.mark.parametrize("training", [True, False])
def test_by_hand_convolutions_pooling_and_a_batch_norm(training):
    """From any y, and for another number of samples than that of the plan."""
    model = pooled()
    rr = Racecar(model, random(3, 2, 8, 8)).train(training)
    model[1].running_mean += 0.3
    model[1].running_var *= 2
    for samples in (3, 5):
        y = random(samples, 7)
        close(rr.reverse(y), pooled_by_hand(model, y))
        close(
            rr.reverse(y, to="7"), torch.tanh(undo_linear(model[7], y).view(-1, 5, 2, 2)).flatten(1).view(-1, 5, 2, 2)
        )


def test_in_evaluation_a_batch_norm_uses_the_reverse_datas_statistics():
    model = chain(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 5))
    x = random(8, 4)
    rr = Racecar(model, x, mode="full", weight=1.0)
    with torch.no_grad():
        for _ in range(20):
            rr(x)
    recorded = rr.reverse_statistics.export()
    rr.eval()
    y = random(3, 5)
    d = undo_linear(model[2], y)
    mean, var = recorded["2:0.mean"], recorded["2:0.var"]
    d = (d - mean) / (var + model[1].eps).sqrt() * model[1].weight + model[1].bias
    close(rr.reverse(y), undo_linear(model[0], d))


def test_by_hand_strides_and_groups():
    """A strided convolution comes back to the true size; groups are transposed group by group."""
    model = chain(nn.Conv2d(2, 4, 3, stride=2, padding=1), nn.LeakyReLU(0.3), nn.Conv2d(4, 6, 2, groups=2, stride=2))
    y = random(2, 6, 2, 2)
    d = F.leaky_relu(
        F.conv_transpose2d(y - model[2].bias[:, None, None], model[2].weight, stride=2, groups=2, output_padding=1), 0.3
    )
    d = F.conv_transpose2d(d - model[0].bias[:, None, None], model[0].weight, stride=2, padding=1, output_padding=1)
    close(Racecar(model, random(2, 2, 10, 10)).reverse(y), d)


def test_by_hand_vgg():
    """A net like VGG, with scaled inputs before, and dropout, a flattening and a scale after."""

    def forward(m, x):
        h = F.max_pool2d(F.relu(m.b(F.relu(m.a((x - 0.5) / 0.25)))), 2)
        h = F.max_pool2d(F.relu(m.c(h)), 2)
        return 3 * m.e(F.dropout(F.relu(m.d(h.flatten(1))), 0.5, m.training))

    parts = {"a": nn.Conv2d(3, 4, 3, padding=1), "b": nn.Conv2d(4, 6, 3, padding=1), "c": nn.Conv2d(6, 5, 3, padding=1)}
    model = Net(forward, **parts, d=nn.Linear(20, 9), e=nn.Linear(9, 6)).double()
    rr, y = Racecar(model, random(2, 3, 8, 8)), random(4, 6)
    h = F.relu(undo_linear(model.e, y / 3))
    h = F.relu(undo_linear(model.d, h).view(4, 5, 2, 2))
    h = F.relu(undo_conv(model.c, up(h)))
    h = undo_conv(model.a, F.relu(undo_conv(model.b, up(h))))
    close(rr.reverse(y), h * 0.25 + 0.5)


def test_the_model_is_never_run():
    model = pooled()
    rr = Racecar(model, random(3, 2, 8, 8))
    for module in model.modules():
        module.register_forward_pre_hook(refuse)
        module.forward = refuse
    assert rr.reverse(random(3, 7)).shape == (3, 2, 8, 8)


@drawn
@given(st.lists(st.integers(1, 6), min_size=2, max_size=4), st.integers(1, 4), st.integers(1, 4))
def test_the_reverse_of_a_linear_net_is_its_adjoint(sizes, planned, samples):
    model = chain(*(nn.Linear(a, b, bias=False) for a, b in pairwise(sizes)))
    rr = Racecar(model, random(planned, sizes[0]))
    x, y = random(samples, sizes[0]), random(samples, sizes[-1])
    with torch.no_grad():
        same_product(model(x), y, x, rr.reverse(y))


@drawn
@given(
    st.integers(1, 3), st.integers(1, 3), st.integers(1, 2), st.integers(0, 1), st.integers(5, 9), st.integers(2, 4)
)  # fmt: skip
def test_the_reverse_of_linear_convolutions_is_their_adjoint(channels, kernel, stride, padding, size, samples):
    options = {"stride": stride, "padding": min(padding, kernel // 2), "bias": False}
    model = chain(nn.Conv2d(2, channels, kernel, **options), nn.ConvTranspose2d(channels, 2, kernel, **options))
    rr = Racecar(model, random(2, 2, size, size + 1))
    x = random(samples, 2, size, size + 1)
    with torch.no_grad():
        y = torch.randn_like(model(x))
        same_product(model(x), y, x, rr.reverse(y))


@drawn
@given(st.integers(1, 6), st.integers(1, 5), st.booleans())
def test_the_reverse_of_an_orthogonal_net_is_its_inverse(width, samples, parametrised):
    """With biases, also where the weights are parametrised."""
    layers = [nn.Linear(width, width).double() for _ in range(3)]
    for layer in layers:
        orthogonal(layer) if parametrised else nn.init.orthogonal_(layer.weight)
    model, x = chain(*layers), random(samples, width)
    rr = Racecar(model, random(2, width))
    close(rr.reverse(model(x)), x)
    y = random(samples, width)
    close(model(rr.reverse(y)), y)


def test_gradients_flow_to_y_and_to_the_weights():
    model = chain(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Tanh(), nn.Flatten(), nn.Linear(8, 4))
    rr, y = Racecar(model, random(2, 1, 4, 4)), random(2, 4).requires_grad_()
    names = [name for name, _ in rr.named_parameters()]

    def run(y, *weights):
        parameters = dict(zip(names, weights, strict=True))
        return torch.func.functional_call(_Reverse(rr), {f"rr.{name}": one for name, one in parameters.items()}, (y,))

    assert torch.autograd.gradcheck(run, (y, *(one.detach().clone().requires_grad_() for one in rr.parameters())))


class _Reverse(nn.Module):
    def __init__(self, rr):
        super().__init__()
        self.rr = rr

    def forward(self, y):
        return self.rr.reverse(y)


def test_the_weights_are_those_of_now():
    """After a training step, after new ones were loaded, and where they are worked out of parameters."""
    model = chain(weight_norm(nn.Linear(3, 4)), nn.Tanh(), nn.Linear(4, 2))
    rr, y = Racecar(model, random(2, 3)), random(2, 2)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1.7)
    close(rr.reverse(y), undo_linear(model[0], torch.tanh(undo_linear(model[2], y))))
    model.load_state_dict({key: value + 0.1 for key, value in model.state_dict().items()}, assign=True)
    close(rr.reverse(y), undo_linear(model[0], torch.tanh(undo_linear(model[2], y))))
    rr.reverse(y).sum().backward()
    assert all(weight.grad is not None for weight in (*model[0].parametrizations.parameters(), *model[2].parameters()))


def test_constants_of_every_kind():
    """Plain attributes, buffers, what a model computes from sizes, and a shape taken from the data."""

    def forward(m, x):
        x = x - torch.arange(3, dtype=x.dtype, device=x.device)
        x = m.a(x) * m.scale + m.shift.expand_as(m.a(x)) - torch.zeros_like(x[:, :1])
        return m.b(torch.tanh(x)) / 2

    model = Net(forward, a=nn.Linear(3, 4), b=nn.Linear(4, 2)).double()
    model.scale = torch.tensor(3.0, dtype=torch.float64)
    model.register_buffer("shift", random(1, 4))
    rr = Racecar(model, random(2, 3))
    for samples in (2, 5):
        y = random(samples, 2)
        d = torch.tanh(undo_linear(model.b, y * 2))
        close(rr.reverse(y), undo_linear(model.a, (d - model.shift) / 3) + torch.arange(3))


def test_a_model_that_was_moved():
    """Constants that a model makes for itself are made where y is."""
    model = chain(lambda x: x - torch.arange(3, dtype=x.dtype, device=x.device), nn.Linear(3, 4), nn.BatchNorm1d(4))
    rr = Racecar(model, random(2, 3)).to("meta")
    assert rr.reverse(random(5, 4).to("meta")).device.type == "meta"


def test_the_branch_is_that_of_the_last_call():
    """A second head in training alone."""

    def forward(m, x):
        h = torch.tanh(m.a(x))
        return (m.b(h), m.c(h)) if m.training else m.b(h)

    model = Net(forward, a=nn.Linear(3, 4), b=nn.Linear(4, 2), c=nn.Linear(4, 5)).double()
    rr, y = Racecar(model, random(2, 3)), random(6, 2)
    first = undo_linear(model.a, torch.tanh(undo_linear(model.b, y)))
    close(rr.reverse((y, None)), first)
    with pytest.raises(ValueError, match="2 outputs"):
        rr.reverse(y)
    rr.eval()(random(2, 3))
    close(rr.reverse(y), first)


def test_a_layer_to_end_at_and_a_layer_to_start_from():
    model = pooled()
    x = random(3, 2, 8, 8)
    rr, y = Racecar(model, x, weight=1.0), random(3, 7)
    d = rr.reverse(y, to="4")
    assert d.shape == (3, 4, 8, 8)  # after the activation and before the pooling
    close(rr.reverse(d, start="0"), rr.reverse(y))
    close(rr.reverse(y, start="7"), rr.reverse(y))
    rr.eval()
    with torch.no_grad():
        out = model[:6](x)
    close(rr.reverse(out, start="4", to="4"), rr.reconstruct(x)[1])  # one layer alone: as in mode "layerwise"


def test_settings_do_not_matter_but_the_activation_of_the_input_does():
    model, x, y = pooled(), random(3, 2, 8, 8), random(3, 7)
    plain = Racecar(model, x).reverse(y)
    rr = Racecar(model, x, mode="linear", weight={"*": 0.1, "@head": 0}, fraction=0.5)
    for weight in model.parameters():
        weight.requires_grad_(False)
    close(rr.reverse(y), plain)
    rr.weight = 0
    close(rr.reverse(y), plain)
    close(Racecar(pooled_like(model), x, input_activation="relu").reverse(y), plain.relu())


def pooled_like(model):
    other = copy.deepcopy(model)
    for weight in other.parameters():
        weight.requires_grad_(True)
    return other


def test_an_embedding_is_where_it_ends():
    model, x = NETWORKS["text"]()
    rr = Racecar(model, x)
    assert rr.reverse(call(model, x)).is_floating_point()


def test_copies():
    rr, y = Racecar(pooled(), random(3, 2, 8, 8)), random(3, 7)
    before = rr.reverse(y)
    other = copy.deepcopy(rr)
    with torch.no_grad():
        other.model[7].weight.zero_()
    close(rr.reverse(y), before)
    assert not torch.equal(other.reverse(y), before)
    loaded = pickle.loads(pickle.dumps(rr))
    with pytest.raises(RuntimeError, match="call it once"):
        loaded.reverse(y)
    loaded(random(3, 2, 8, 8))
    assert loaded.reverse(y).shape == before.shape


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (lambda: {"y": random(3, 6)}, ("(3, 6)", "(N, 7)")),
        (lambda: {"y": random(7)}, ("(7,)", "(N, 7)")),
        (lambda: {"y": random(3, 7), "to": "8"}, ("to", "'8'", "'7'")),
        (lambda: {"y": random(3, 7), "start": "8"}, ("start", "'8'")),
        (lambda: {"y": random(3, 7), "start": "4"}, ("output of 4", "(N, 5, 2, 2)")),
        (lambda: {"y": random(3, 2 * 8), "to": 3}, ("to", "3")),
        (lambda: {"y": random(3, 5, 2, 2), "start": "4", "to": "7"}, ("to", "'7'", "not on the way")),
        (lambda: {"y": random(3, 7), "given": {"add": random(3)}}, ("given", "'add'", "none")),
        (lambda: {"y": random(3, 7), "given": random(3)}, ("given", "dict")),
        (lambda: {"y": None}, ("y", "NoneType")),
        (lambda: {"y": torch.ones(3, 7, dtype=torch.int64)}, ("y", "floating-point")),
        (lambda: {"y": {"logits": random(3, 7)}}, ("'logits'",)),
    ],
)
def test_mistakes_are_one_sentence(arguments, words):
    rr = Racecar(pooled(), random(3, 2, 8, 8))
    with pytest.raises((ValueError, TypeError)) as caught:
        rr.reverse(**arguments())
    text = str(caught.value)
    assert all(word in text for word in words), text
    assert "\n" not in text


def test_a_plan_of_a_single_sample_is_refused_where_the_batch_cannot_be_told():
    model = chain(lambda x: x.transpose(0, 1), nn.Linear(3, 4), lambda x: x.transpose(0, 1))
    rr = Racecar(model, random(1, 5, 3))
    assert rr.reverse(random(1, 5, 4)).shape == (1, 5, 3)
    with pytest.raises(ValueError, match="two or more samples"):
        rr.reverse(random(2, 5, 4))
    assert Racecar(model, random(2, 5, 3)).reverse(random(7, 5, 4)).shape == (7, 5, 3)


def test_noise_that_the_model_draws_is_not_guessed():
    model = chain(nn.Linear(3, 4), lambda x: x + torch.randn(4, dtype=x.dtype), nn.Tanh(), nn.Linear(4, 2))
    with pytest.raises(ValueError, match="random"):
        Racecar(model, random(2, 3)).reverse(random(2, 2))


@pytest.mark.parametrize("fullgraph", [True, False])
def test_compiled(fullgraph):
    """With fullgraph=True it has to be called once before."""
    torch._dynamo.reset()
    rr, y = Racecar(pooled(), random(3, 2, 8, 8)), random(3, 7).requires_grad_()
    expected = rr.reverse(y)
    (gradient,) = torch.autograd.grad(expected.sum(), [y])
    compiled = torch.compile(rr.reverse, backend="aot_eager", fullgraph=fullgraph)
    back = compiled(y)
    close(back, expected)
    close(torch.autograd.grad(back.sum(), [y])[0], gradient)
    other = random(2, 7)
    close(compiled(other), rr.reverse(other))
    torch._dynamo.reset()
