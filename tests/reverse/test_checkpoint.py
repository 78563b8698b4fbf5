"""Activation checkpointing: non-re-entrant it changes nothing, re-entrant it is refused."""

import copy

import pytest
import torch
from torch import nn
from torch.overrides import _get_current_function_mode_stack
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from racecar import Unsupported
from tests.hf_zoo import HF_MODELS
from tests.losses import classic
from tests.networks import NETWORKS, images, rows, seeded
from tests.networks.forms import Checkpointed
from tests.steps import assert_same, step


class Blocks(nn.Module):
    """Blocks in a row; `how` is None (no checkpointing), or what `use_reentrant` is."""

    def __init__(self, *blocks, how=None):
        super().__init__()
        self.blocks, self.how = nn.ModuleList(blocks), how

    def forward(self, x):
        for block in self.blocks:
            x = block(x) if self.how is None else checkpoint(block, x, use_reentrant=self.how)
        return x


def conv(inputs, outputs):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(2, outputs), nn.ReLU(inplace=True))


def dense(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, outputs), nn.Tanh(), nn.Dropout(0.3))


def normed(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs), nn.ReLU())


CASES = {
    "in place": lambda: (Blocks(conv(3, 4), nn.MaxPool2d(2), conv(4, 4), conv(4, 2)), images(size=8)),
    "dropout": lambda: (Blocks(dense(6, 8), dense(8, 8), nn.Linear(8, 3)), rows()),
    "batch norm": lambda: (Blocks(normed(6, 8), normed(8, 8), nn.Linear(8, 3)), rows()),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("settings", [{}, {"fraction": 0.5, "scale": "mean"}, {"mode": "layerwise"}])
def test_checkpointing_equals_none(name, settings):
    model, x = seeded(CASES[name])()
    plain = classic(copy.deepcopy(model), x, **settings)
    model.how = False
    made, expected = step(classic(model, x, **settings), x), step(plain, x)
    assert_same(made._replace(buffers={}), expected._replace(buffers={}))  # torch itself updates the buffers twice


def test_buffers_are_as_for_the_checkpointed_model_alone():
    model, x = seeded(CASES["batch norm"])()
    model.how = False
    alone = copy.deepcopy(model)
    alone(x).sum().backward()
    step(classic(model, x), x)
    for (name, buffer), expected in zip(model.named_buffers(), alone.buffers(), strict=True):
        torch.testing.assert_close(buffer, expected, msg=lambda text, name=name: f"{name}: {text}")


def test_hugging_face():
    model, inputs = HF_MODELS["gpt2"]()
    plain = classic(copy.deepcopy(model).train(), inputs)
    model.train().gradient_checkpointing_enable({"use_reentrant": False})
    assert_same(step(classic(model, inputs), inputs), step(plain, inputs))


def test_the_whole_racecar_may_be_checkpointed():
    rr = classic(*NETWORKS["vgg_plain"]())
    x = NETWORKS["vgg_plain"](seed=1)[1]
    assert_same(step(rr, x, run=lambda x: checkpoint(rr, x, use_reentrant=False)), step(rr, x))


class Sequence(Checkpointed):
    """torch's own cut of a sequence into segments."""

    def forward(self, x):
        return self.last(checkpoint_sequential(self.middle, 2, self.first(x), use_reentrant=self.use_reentrant))


class Nested(Checkpointed):
    """Re-entrant inside of one that is not."""

    def forward(self, x):
        def inner(x):
            return checkpoint(self.middle, x, use_reentrant=self.use_reentrant)

        return self.last(checkpoint(inner, self.first(x), use_reentrant=False))


REFUSED = [Checkpointed, Sequence, Nested]


@pytest.mark.parametrize("kind", REFUSED)
def test_reentrant_is_refused_at_construction(kind):
    with pytest.raises(Unsupported, match="re-entrant.*wrong gradients.*use_reentrant=False"):
        classic(kind(use_reentrant=True), torch.randn(4, 6))
    assert_nothing_is_left()


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("mode", ["auto", "layerwise"])
def test_reentrant_is_refused_in_training(kind, mode):
    """It was switched on later, as trainers do."""
    x = torch.randn(4, 6)
    model = kind()
    rr = classic(model, x, mode=mode)
    rr(x)[1].backward()
    model.use_reentrant = True
    with pytest.raises(Unsupported, match="re-entrant.*wrong gradients.*use_reentrant=False"):
        rr(x)
    assert_nothing_is_left()
    model(x.requires_grad_()).sum().backward()


def assert_nothing_is_left():
    assert not _get_current_function_mode_stack()
    assert not nn.modules.module._global_forward_hooks
    assert not nn.modules.module._global_forward_pre_hooks
