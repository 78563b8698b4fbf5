"""Where there is no unique reverse pass: joins, and layers and operations without a rule."""

import warnings

import pytest
import torch
from torch import nn

from racecar import NoRuleWarning
from racecar.inspect.invertibility import invertibility
from tests.by_hand import Net, undo_linear
from tests.cases import CASES
from tests.networks import NETWORKS


def test_joins():
    """relu(bn(conv) + x): from the first layer the input can be rebuilt, behind the join it cannot."""
    model, x, _ = CASES["join_residual"]()
    found = invertibility(model, x)
    assert found.mode == "auto"
    first, second = found
    assert first.input == pytest.approx(first.layerwise)
    assert (second.input, second.psnr, second.ssim) == (None, None, None)
    assert second.note == "no unique way to the input: a join lies between"
    assert second.way is not None
    assert list(found.rebuilt) == ["d2"]


JOINED = {
    "resnet_pad": ["conv1", "blocks.0.conv1", "blocks.0.conv2"],
    "preact_resnet": ["conv1", "blocks.0.conv1", "blocks.0.conv2"],
    "unet": ["down.0.0", "down.0.3", "down.1.0", "down.1.3", "down.2.0", "down.2.3", "up.0"],
    "gated": ["gate", "up"],  # d1 is what the norm gave, and both read it
    "scaled_dot_product": ["qkv"],
    "two_inputs": ["image"],
}


@pytest.mark.parametrize("name", JOINED)
def test_which_depths_lead_back(name):
    model, inputs = NETWORKS[name]()
    found = invertibility(model, inputs)
    assert found.mode == "auto"
    back = [d.layer for d in found if d.input is not None]
    assert back == JOINED[name]
    assert [d.layer for d in found if f"d{int(d.name[1:]) + 1}" in found.rebuilt] == back
    for depth in found:
        assert bool(depth.note) == (depth.input is None)
    for rebuilt in found.rebuilt.values():
        assert rebuilt.shape == found.inputs.shape


def test_two_layers_that_read_the_input():
    torch.manual_seed(0)
    model = Net(lambda m, x: (m.a(x), m.b(x)), a=nn.Linear(6, 5), b=nn.Linear(6, 4))
    x = torch.randn(4, 6)
    found = invertibility(model, x)
    with torch.no_grad():
        for name, layer in (("d2", model.a), ("d3", model.b)):
            torch.testing.assert_close(found.rebuilt[name], undo_linear(layer, layer(x)))


def test_heads():
    """A fork is no join: the input can be rebuilt from both heads."""
    torch.manual_seed(0)
    parts = {"a": nn.Linear(6, 5), "b": nn.Linear(5, 4), "c": nn.Linear(5, 3)}
    model, x = Net(lambda m, x: [m.b(h := torch.tanh(m.a(x))), m.c(h)], **parts), torch.randn(4, 6)
    found = invertibility(model, x)
    assert found.mode == "full"
    with torch.no_grad():
        h = torch.tanh(model.a(x))
        for name, head in (("d3", model.b), ("d4", model.c)):
            back = undo_linear(model.a, torch.tanh(undo_linear(head, head(h))))
            torch.testing.assert_close(found.rebuilt[name], back)


def skipping():
    """The layer in the middle has a weight and no rule."""

    def forward(m, x):
        return m.c(torch.tanh(torch.cdist(torch.tanh(m.a(x)), m.w)))

    torch.manual_seed(0)
    model = Net(forward, a=nn.Linear(4, 6), w=nn.Parameter(torch.randn(5, 6)), c=nn.Linear(5, 3))
    return model, torch.randn(7, 4)


def test_a_layer_without_a_rule_hides_the_input():
    """The input cannot be rebuilt from above that layer, and the reverse pass must not restart below it."""
    model, x = skipping()
    with pytest.warns(NoRuleWarning, match="cdist"):
        found = invertibility(model, x)
    first, skipped, last = found
    assert first.input == pytest.approx(first.layerwise)
    assert (skipped.way, skipped.layerwise, skipped.input) == (None, None, None)
    assert "no rule for cdist" in skipped.note
    assert last.layerwise is not None
    assert last.input is None
    assert last.note
    assert list(found.rebuilt) == ["d2"]


def test_an_operation_without_a_rule_hides_the_input():
    torch.manual_seed(0)
    model = Net(lambda m, x: m.b(torch.sort(m.a(x))[0]), a=nn.Linear(6, 5), b=nn.Linear(5, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoRuleWarning)
        first, last = invertibility(model, torch.randn(4, 6))
    assert first.input is not None
    assert last.input is None
    assert last.note
