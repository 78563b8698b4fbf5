"""Activations are re-applied in the reverse pass, with their own parameters, however they are written."""

import inspect

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules import activation

from tests.losses import classic
from tests.rules.common import chain, close, forward, random, rebuild, rebuild_in

NOT_ELEMENTWISE = {"GLU", "MultiheadAttention", "Softmax", "Softmax2d", "Softmin", "LogSoftmax"}
ARGUMENTS = {"Threshold": (0.1, -0.5), "LeakyReLU": (0.3,), "CELU": (0.7,), "Softplus": (2.0,), "Softshrink": (0.2,)}
FUNCTIONS = {"LeakyReLU": "leaky_relu", "LogSigmoid": "logsigmoid"}  # the others are the class's name in lower case
MODULES = sorted(set(activation.__all__) - NOT_ELEMENTWISE)
IN_PLACE = [name for name in MODULES if "inplace" in inspect.signature(getattr(nn, name)).parameters]
SPACES = {"F": F, "torch": torch, "Tensor": Tensor}
SPELLINGS = [
    (space, name, cls)
    for cls in MODULES
    for name in (FUNCTIONS.get(cls, cls.lower()), FUNCTIONS.get(cls, cls.lower()) + "_")
    for space in SPACES
    if hasattr(SPACES[space], name) and cls != "PReLU"
]


def check(act, again=None):
    """Linear → act → Linear against the reverse pass written by hand, where `again` is what is re-applied."""
    torch.manual_seed(1)
    a, b, x = nn.Linear(6, 5).double(), nn.Linear(5, 4).double(), random(20, 6)
    nn.init.normal_(b.weight)  # to both sides of every kink
    again = again or act
    d2 = forward(chain(a, act), x)
    d3 = forward(chain(a, act, b), x)
    with torch.no_grad():
        back2 = again((d3 - b.bias) @ b.weight)
        layerwise, full = (d2 - a.bias) @ a.weight, (back2 - a.bias) @ a.weight
    assert not torch.equal(back2, (d3 - b.bias) @ b.weight)
    for found, first in zip(rebuild_in(chain(a, act, b), x, "layerwise", "full"), (layerwise, full), strict=True):
        close(found, [first, back2])


def mean_slope(x, lower=1 / 8, upper=1 / 3):
    return torch.where(x > 0, x, (lower + upper) / 2 * x)


@pytest.mark.parametrize("name, inplace", [(name, False) for name in MODULES] + [(name, True) for name in IN_PLACE])
def test_modules(name, inplace):
    """Every element-wise activation of torch.nn: a new one in torch comes in by itself."""
    cls = getattr(nn, name)
    act = cls(*ARGUMENTS.get(name, ()), **({"inplace": True} if inplace else {}))
    check(act, mean_slope if name == "RReLU" else lambda x: act.double()(x.clone()))


@pytest.mark.parametrize("space, name, cls", SPELLINGS)
def test_functions(space, name, cls):
    func, args = getattr(SPACES[space], name), ARGUMENTS.get(cls, ())
    again = mean_slope if cls == "RReLU" else getattr(nn, cls)(*args)
    if cls == "RReLU":
        check(lambda x: func(x, training=True), again)
    else:
        check(lambda x: func(x, *args), again)


def test_every_activation_has_a_function():
    assert {cls for _, _, cls in SPELLINGS} == set(MODULES) - {"PReLU"}
    assert len(SPELLINGS) > 50


def test_inplace_by_name_and_by_position():
    for act in (lambda x: F.leaky_relu(x, 0.2, True), lambda x: F.leaky_relu(x, negative_slope=0.2, inplace=True)):
        check(act, nn.LeakyReLU(0.2))


@pytest.mark.parametrize("training", [True, False])
def test_rrelu_uses_its_mean_slope(training):
    act = nn.RReLU(0.1, 0.5).train(training)
    check(act, lambda x: mean_slope(x, 0.1, 0.5))
    if not training:
        return
    check(lambda x: F.rrelu(x, upper=0.5, lower=0.1, training=True), lambda x: mean_slope(x, 0.1, 0.5))


MATHS = {
    "abs": torch.abs, "sin": Tensor.sin, "exp": torch.exp, "erf": torch.special.erf, "square": torch.square,
    "clamp": lambda x: x.clamp(-0.1, 0.2), "clamp_": lambda x: x.clamp_(min=-0.1), "x ** 2": lambda x: x**2,
    "pow": lambda x: torch.pow(x, 2), "atan": torch.arctan, "expit": torch.special.expit,
    "sqrt": lambda x: (x * x).sqrt(), "1 / x": lambda x: 1 / x, "max with 0": lambda x: torch.max(x, torch.zeros(())),
    "max by name": lambda x: torch.max(x, other=torch.zeros(5)), "2 ** x": lambda x: 2**x,
    "nan_to_num": lambda x: x.log().nan_to_num(), "maximum": lambda x: torch.maximum(x, torch.linspace(-1, 1, 5)),
    "logit": lambda x: torch.logit(x, eps=0.1), "where": lambda x: torch.where(x > 0, x, 0.1 * x),
    "relu of relu6": lambda x: F.relu(F.relu6(x) - 0.1),
}  # fmt: skip


@pytest.mark.parametrize("act", MATHS.values(), ids=MATHS)
def test_other_functions(act):
    check(act)


SQRT2 = 2**0.5
BY_HAND = {
    "x * sigmoid(x)": (lambda x: x * torch.sigmoid(x), nn.SiLU()),
    "sigmoid(x) * x": (lambda x: x.sigmoid().mul(x), nn.SiLU()),
    "x * tanh(softplus(x))": (lambda x: x * torch.tanh(F.softplus(x)), nn.Mish()),
    "gelu": (lambda x: 0.5 * x * (1 + torch.erf(x / SQRT2)), nn.GELU()),
    "new gelu": (
        lambda x: 0.5 * x * (1.0 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * torch.pow(x, 3.0)))),
        nn.GELU("tanh"),
    ),
    "crelu": (lambda x: F.relu(x) - 0.1 * F.relu(-x), nn.LeakyReLU(0.1)),
    "x * x": (lambda x: x * x, torch.square),
    "maximum of x and x / 10": (lambda x: torch.maximum(x, x * 0.1), nn.LeakyReLU(0.1)),
}


@pytest.mark.parametrize("act, again", BY_HAND.values(), ids=BY_HAND)
def test_written_by_hand(act, again):
    """Several calls that are together one function of one tensor are re-applied as one."""
    check(act, again)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("random_part", [nn.RReLU(), nn.Dropout(0.5)])
def test_written_by_hand_with_a_random_part(random_part, training):
    """In the reverse pass RReLU has its mean slope and dropout is passed over, also inside such a function."""
    random_part.train(training)
    again = mean_slope if isinstance(random_part, nn.RReLU) else nn.Identity()
    check(lambda x: x.sigmoid() * random_part(x), lambda x: x.sigmoid() * again(x))


RANDOM = {
    "rrelu": nn.RReLU(), "rrelu inside": lambda x: x.sigmoid() * F.rrelu(x, training=True), "dropout": nn.Dropout(),
    "dropout inside": lambda x: x + F.dropout(x.tanh()), "gumbel_softmax": F.gumbel_softmax,
}  # fmt: skip


@pytest.mark.parametrize("act", RANDOM.values(), ids=RANDOM)
def test_the_way_back_draws_no_random_number(act):
    """After a call the random state is that of the model alone."""
    model, x = chain(nn.Linear(6, 5), act, nn.Linear(5, 4)), random(3, 6)
    rr, states = classic(model, x), []
    for call in (model, rr):
        torch.manual_seed(0)
        call(x)
        states.append(torch.get_rng_state())
    assert torch.equal(*states)


@pytest.mark.parametrize("form", ["module", "F", "torch", "one"])
def test_prelu(form):
    """One slope per channel: re-applied in the layout of the forward pass."""
    torch.manual_seed(0)
    act = nn.PReLU(1 if form == "one" else 3).double()
    nn.init.uniform_(act.weight)
    part = {"F": lambda x: F.prelu(x, act.weight), "torch": lambda x: torch.prelu(x, act.weight)}.get(form, act)
    a, b, x = nn.Conv2d(2, 3, 1), nn.Linear(3 * 4, 5), random(2, 2, 2, 2)
    model = chain(a, part, nn.Flatten(), b)
    y = (forward(model, x) - b.bias) @ b.weight
    close(rebuild(model, x)[1], act(y.view(2, 3, 2, 2)))


SOFTMAX = {
    "Softmax": nn.Softmax(1), "LogSoftmax": nn.LogSoftmax(-1), "Softmin": nn.Softmin(1),
    "F.softmax": lambda x: F.softmax(x, dim=-1), "F.log_softmax": lambda x: F.log_softmax(x, -1),
    "torch": lambda x: torch.log_softmax(x, 1), "Tensor": lambda x: x.softmax(dim=1),
    "special": lambda x: torch.special.softmax(x, 1), "log_softmax method": lambda x: x.log_softmax(-1),
    "special log": lambda x: torch.special.log_softmax(x, 1),
}  # fmt: skip


@pytest.mark.parametrize("softmax", SOFTMAX.values(), ids=SOFTMAX)
def test_softmax(softmax):
    """Looked through at the end, also after an activation; re-applied in the middle."""
    check(softmax)
    torch.manual_seed(0)
    layer, x = nn.Linear(4, 3), random(2, 4)
    for after in ((), (nn.Tanh(),)):
        for mode in ("layerwise", "full"):
            bare, model = chain(layer, *after), chain(layer, *after, softmax)
            close(rebuild(model, x, mode), rebuild(bare, x, mode))
            close(classic(model, x, mode)(x)[1], classic(bare, x, mode)(x)[1])


def test_softmax2d_of_a_segmentation():
    torch.manual_seed(0)
    layer, x = nn.Conv2d(2, 3, 3), random(2, 2, 5, 5)
    close(rebuild(chain(layer, nn.Softmax2d()), x), rebuild(chain(layer), x))
