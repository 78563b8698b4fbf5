"""Which weights of a model count, and what is refused."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

from racecar.orthogonality import BANSAL, Schedule, dso, mc, ocnn, so, srip
from tests.orthogonality.common import ALL, close, net


def weights(model):
    return [m.weight for m in model.modules() if not isinstance(m, nn.Sequential | nn.BatchNorm2d)]


@pytest.mark.parametrize("f", [so, dso, mc, srip])
def test_a_model_is_its_weights(f):
    model = net()
    w = weights(model)
    forms = model, w, iter(w), {str(i): one for i, one in enumerate(w)}
    values = []
    for form in forms:
        torch.manual_seed(8)
        values.append(f(form))
    assert all(torch.equal(value, values[0]) for value in values)
    if f is not srip:  # its random starts are drawn in another order
        close(values[0], sum(f(one).detach() for one in w))
    values[0].backward()
    assert all(one.grad.abs().max() > 0 for one in w)


def test_ocnn_of_a_model_is_that_of_its_layers():
    model = net()
    parts = [m for m in model.modules() if isinstance(m, nn.Linear | nn.modules.conv._ConvNd)]
    assert len(parts) == len(weights(model)) == 9
    close(ocnn(model), sum(ocnn(part).detach() for part in parts))


@pytest.mark.parametrize("f", [so, ocnn])
def test_shared_weights_count_once(f):
    """Within a module, between modules, and between a convolution and its transposed twin."""
    a, b = nn.Conv2d(3, 4, 3), nn.ConvTranspose2d(4, 3, 3)
    b.weight = a.weight
    c, d = nn.Linear(4, 4), nn.Linear(4, 4)
    d.weight = c.weight
    assert f(nn.Sequential(a, b, c, c, d)) == f(nn.Sequential(a, c)) == f(nn.Sequential(b, d))
    assert so([a.weight, a.weight]) == so(a)


def test_layers_are_picked_by_name():
    model = net()
    w = dict(zip(["0", "1.0", "1.2", *"234567"], weights(model), strict=True))
    assert so(model, layers="1.*") == so([w["1.0"], w["1.2"]])
    assert so(model, layers=["[67]", "0"]) == so([w["0"], w["6"], w["7"]])
    assert so(w, layers=("1.?",)) == so([w["1.0"], w["1.2"]])
    assert ocnn(model, layers="0") == ocnn(w["0"], stride=2)
    with pytest.raises(ValueError, match="layers pattern '8' matches no layer; the layers are: '0', '1.0', "):
        so(model, layers=["0", "8"])


@pytest.mark.parametrize("f", ALL)
def test_parametrised_weights(f):
    class Double(nn.Module):
        def forward(self, w):
            return 2 * w

    layer = nn.Conv2d(2, 2, 2).double()
    parametrize.register_parametrization(layer, "weight", Double())
    normed = parametrizations.weight_norm(nn.Linear(3, 3).double())
    torch.manual_seed(5)
    value = f(nn.Sequential(layer, normed))
    torch.manual_seed(5)
    close(value, f([2 * layer.parametrizations.weight.original, normed.weight]).detach())
    value.backward()
    assert layer.parametrizations.weight.original.grad.abs().sum() > 0
    assert normed.parametrizations.weight.original0.grad.abs().sum() > 0


RECURRENT = {
    "stacked": lambda: nn.LSTM(3, 4, 2, bidirectional=True, proj_size=2),
    "gru": lambda: nn.GRU(3, 4, bias=False),
    "cell": lambda: nn.RNNCell(3, 4),
}


@pytest.mark.parametrize("kind", RECURRENT)
def test_recurrent_weights(kind):
    """Each is one W, its gates one below the other, called as a plan calls it; biases are none."""
    model = nn.ModuleDict({"rnn": RECURRENT[kind](), "head": nn.Linear(2, 3)}).double()
    own = {name: one for name, one in model["rnn"].named_parameters() if one.dim() > 1}
    assert len(own) == {"stacked": 12, "gru": 2, "cell": 2}[kind]
    close(so(model), sum(so(one).detach() for one in (*own.values(), model["head"].weight)))
    close(so(model, layers="rnn"), so(own).detach())
    for name, one in own.items():
        assert so(model, layers=f"rnn.{name}") == so(model["rnn"], layers=name) == so(one)
    so(model).backward()
    assert all(one.grad.abs().max() > 0 for one in own.values())


def test_parametrised_recurrent_weights():
    rnn = nn.RNN(3, 4)
    parametrizations.orthogonal(rnn, "weight_hh_l0")
    torch.testing.assert_close(so(rnn), so(rnn.weight_ih_l0))


BAD = [
    (lambda: so(nn.Sequential(nn.ReLU(), nn.BatchNorm2d(3))), ValueError, "no layer found"),
    (lambda: so([]), ValueError, "no layer found"),
    (lambda: so(net(), layers=[]), ValueError, "no layer found"),
    (lambda: so(3), TypeError, "a model, a weight or several weights are needed, not int"),
    (lambda: so([nn.Linear(2, 2)]), TypeError, "weight '0' must be a tensor, not Linear"),
    (lambda: so({"a": torch.ones(2, 2), "bias": torch.ones(2)}), ValueError, "weight 'bias' has shape \\(2,\\)"),
    (lambda: so(torch.ones(0, 2)), ValueError, "has shape \\(0, 2\\)"),
    (lambda: so(torch.ones(2, 2, dtype=torch.complex64)), TypeError, "must be real"),
    (lambda: so(nn.LazyLinear(3)), ValueError, "has no shape yet"),
    (lambda: so(torch.eye(2), layers="a"), ValueError, "layers picks by name"),
    (lambda: so(torch.eye(2), side="left"), ValueError, "side must be one of 'smaller', 'columns', 'rows', not 'left'"),
    (lambda: srip(torch.eye(2), power=0), ValueError, "power must be a whole number of at least 1, not 0"),
    (lambda: srip(torch.eye(2), power=1.5), ValueError, "power must be"),
    (lambda: srip(torch.eye(2), generator=torch.Generator(), draw=torch.randn), ValueError, "give one of them"),
    (lambda: ocnn(nn.Conv1d(1, 1, 1), stride=2), ValueError, "for bare weights"),
    (lambda: ocnn(torch.ones(4, 2, 3), groups=3), ValueError, "4 filters cannot be in 3 groups"),
    (lambda: ocnn(torch.ones(4, 2, 3), stride=(1, 2)), ValueError, "stride must be 1 whole numbers"),
    (lambda: ocnn(torch.ones(4, 2, 3), dilation=0), ValueError, "dilation must be"),
    (lambda: Schedule(((1, 0.1),)), ValueError, "start at 0 and grow"),
    (lambda: Schedule(((0, 0.1), (5, 0.2), (5, 0.3))), ValueError, "start at 0 and grow"),
    (lambda: Schedule(()), ValueError, "start at 0 and grow"),
    (lambda: BANSAL.at(-1), ValueError, "no epoch -1"),
]


@pytest.mark.parametrize("call, error, message", BAD)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
