"""A model held still, and one pass through it kept whole."""

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from racecar.reverse.forward_pass import ForwardPass
from racecar.support.eval_mode import eval_mode
from tests.by_hand import close, rebuild
from tests.networks import NETWORKS
from tests.pretrain.common import Stop, mlp, mlp_layers, normed, pictures, rows, same, seeded, state


@pytest.mark.parametrize("statistics, norm", [("running", False), ("batch", True)])
def test_looking(statistics: str, norm: bool):
    model = seeded(normed).train()
    model.conv1.training = False
    before = [module.training for module in model.modules()]
    with pytest.raises(Stop), eval_mode(model, statistics):  # noqa: PT012
        training = {name for name, module in model.named_modules() if module.training}
        raise Stop
    assert training == ({"bn1", "bn2"} if norm else set())
    assert [module.training for module in model.modules()] == before


def test_looking_asks_for_known_statistics():
    model = seeded(normed).train()
    with pytest.raises(ValueError, match="batch, running, not 'mean'"), eval_mode(model, "mean"):
        pass
    assert model.training


def test_passage_by_hand():
    """d_m, d_(m+1), the whole reverse pass, the layer-wise one and the one from a layer in the middle."""
    net, (x,) = mlp(), rows(1)
    layers = mlp_layers(net, x)
    forward = ForwardPass(net, (x,))
    assert [layer.name for layer in forward.layers] == ["0", "2", "4"]
    close(forward.output, layers[-1].out.detach())
    for ours, theirs in zip(forward.layers, layers, strict=True):
        close(forward.value(ours.d), theirs.d.detach())
        close(forward.value(ours.out), theirs.out.detach())
    for mode, layerwise in (("full", False), ("layerwise", True)):
        rebuilt = forward.rebuild(forward.plan(mode))
        truth = rebuild(layers, layerwise)
        assert list(rebuilt) in ([0, 1, 2], [2, 1, 0])
        for layer in forward.layers:
            close(rebuilt[layer.index], truth[layer.name].detach())
            assert not rebuilt[layer.index].requires_grad
    middle = forward.rebuild(forward.plan("input", forward.layers[1]), torch.sin)
    close(middle[0], torch.sin(layers[0].back(layers[1].back(layers[1].out))).detach())


def test_passage_keeps_what_is_changed_in_place():
    """`out += identity` comes after the norm whose output is the layer's d_(m+1)."""
    model, x = NETWORKS["resnet"]()
    truth: dict[str, Tensor] = {}

    def keep(module, args, output):
        truth[f"blocks.{len(truth)}.conv2"] = output.clone()

    watched = copy.deepcopy(model)
    for block in watched.blocks:
        block.bn2.register_forward_hook(keep)
    with torch.no_grad():
        watched(x)
    forward = ForwardPass(model, (x,))
    found = {layer.name: forward.value(layer.out) for layer in forward.layers}
    for name, tensor in truth.items():
        torch.testing.assert_close(found[name], tensor)


@pytest.mark.parametrize("training", [True, False])
def test_passage_leaves_no_trace(training: bool):
    model, (x,) = seeded(normed).train(training), pictures(1)
    before, random_state, seen = state(model), torch.get_rng_state(), x.clone()
    forward = ForwardPass(model, (x,), {})
    forward.rebuild(forward.plan("full"))
    assert same(before, state(model))
    assert torch.equal(torch.get_rng_state(), random_state)
    assert torch.equal(x, seen)
    assert model.training == training
    assert all(one.requires_grad and one.grad is None for one in model.parameters())
    assert not forward.output.requires_grad


def test_passage_takes_keyword_arguments():
    model, inputs = NETWORKS["keyword_inputs"]()
    close(ForwardPass(model, (), inputs).output, model(**inputs).detach())


@pytest.mark.parametrize("model", [None, "text", F.relu])
def test_passage_of_no_model(model: Any):
    with pytest.raises(TypeError, match="nn.Module"):
        ForwardPass(model, rows(1))
