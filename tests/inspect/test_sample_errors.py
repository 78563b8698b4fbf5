"""The reverse error of each sample equals that of a batch with this sample alone."""

import pytest
import torch
from torch import nn

from racecar import Racecar
from racecar.inspect import sample_errors
from racecar_lab.experiments.small_net import convolutions, small_net
from racecar_lab.measures.features import deployed


def alone(rr, x):
    """The terms of each sample by itself, in evaluation mode: layer → (N,)."""
    rr.eval()
    seen = []
    with torch.no_grad():
        for one in x.split(1):
            rr(one)
            seen.append(dict(rr.terms))
    return {name: torch.stack([terms[name] for terms in seen]).double() for name in seen[0]}


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize("mode", ["full", "layerwise"])
def test_as_if_alone(norm, mode):
    """Independent of the other samples and of the batch size."""
    torch.manual_seed(0)
    model = small_net("digits", 3, norm, "he")
    if norm == "batch":
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                nn.init.uniform_(module.running_mean, -1, 1)
                nn.init.uniform_(module.running_var, 0.5, 2)
    names = convolutions(3, norm)
    options = {"weight": {"*": 0.0, **dict.fromkeys(names, 1.0)}, "input_activation": "relu"}
    rr = deployed(model, torch.rand(12, 1, 28, 28), mode, options, batch=6)
    assert rr.reverse_statistics.known is (norm == "batch")
    x = torch.rand(5, 1, 28, 28) * torch.tensor([0.1, 1.0, 5.0, 20.0, 0.5]).view(-1, 1, 1, 1)
    wanted, before = alone(rr, x), rr.reverse_statistics.export()
    rr.train()
    for batch in (5, 2):
        found = sample_errors(rr, x, batch)
        assert list(found) == names
        for name in names:
            torch.testing.assert_close(found[name], wanted[name], rtol=1e-4, atol=1e-6)
    assert rr.training
    assert all(torch.equal(one, before[name]) for name, one in rr.reverse_statistics.export().items())


class Moved(nn.Module):
    """A net that moves its batch to the second dimension, or puts it and the tokens into one."""

    def __init__(self, merged):
        super().__init__()
        self.merged, self.first, self.second = merged, nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, x):
        x = x.flatten(0, 1) if self.merged else x.transpose(0, 1)
        return self.second(torch.tanh(self.first(x)))


@pytest.mark.parametrize("merged", [False, True])
def test_wherever_the_batch_is(merged):
    torch.manual_seed(0)
    x = torch.randn(5, 7, 4)
    rr = Racecar(Moved(merged), x[:2], mode="full", weight=1.0)
    wanted = alone(rr, x)
    for name, found in sample_errors(rr, x, batch=3).items():
        torch.testing.assert_close(found, wanted[name], rtol=1e-4, atol=1e-6)
