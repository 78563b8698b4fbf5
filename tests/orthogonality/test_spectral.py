"""SRIP against singular values, and its power iteration against a loop."""

import numpy as np
import pytest
import torch

from racecar.orthogonality import spectral, srip
from tests.orthogonality.common import SIDES, close, gram_error, random
from tests.pairwise import pairwise


@pytest.mark.parametrize("side, squared, formed", pairwise(SIDES, [False, True], [256, 0]))
def test_srip_becomes_the_largest_singular_value(monkeypatch, side, squared, formed):
    """Value and gradient, with and without a formed Gram matrix."""
    monkeypatch.setattr(spectral, "FORMED", formed)
    drawn = [random(4, 6), random(7, 3), random(4, 2, 3), random(7, 3)]
    drawn = [(w / 2).requires_grad_() for w in drawn]
    tall = [w.flatten(1) if side == "rows" or (side == "smaller" and len(w) < 6) else w.flatten(1).mT for w in drawn]
    sigmas = [torch.linalg.svdvals(w @ w.mT - torch.eye(len(w)))[0] for w in tall]
    truth = sum(sigma**2 if squared else sigma for sigma in sigmas)
    value = srip(drawn, power=300, squared=squared, side=side)
    close(value, truth.detach(), 1e-8)
    for ours, theirs in zip(torch.autograd.grad(value, drawn), torch.autograd.grad(truth, drawn), strict=True):
        close(ours, theirs, 1e-6)


def by_loop(weight, start, power):
    e, v = gram_error(weight, "smaller"), start.numpy().ravel()
    for _ in range(power):
        v = e @ (v / np.linalg.norm(v))
    return np.linalg.norm(v)


def recorder():
    """A ``draw`` that keeps what it has drawn: one tensor for each power iteration that is run."""
    starts = []
    return starts, lambda *shape, **like: starts.append(torch.randn(*shape, **like)) or starts[-1]


@pytest.mark.parametrize("power", [1, 2, 5])
@pytest.mark.parametrize("formed", [256, 0])
def test_stacked_layers_are_iterated_as_if_alone(monkeypatch, power, formed):
    monkeypatch.setattr(spectral, "FORMED", formed)
    drawn = [random(4, 6), random(4, 2, 3), random(4, 7), random(9, 4)]
    starts, draw = recorder()
    value = srip(drawn, power=power, draw=draw)
    assert len(starts) == (1 if formed else 3)
    close(value, sum(by_loop(w, start, power) for w, start in zip(drawn, torch.cat(starts), strict=True)))


def test_a_deep_network_takes_few_iterations():
    """The shapes of ResNet110: 110 layers, four sizes of Gram matrix."""
    convs = [(16, 3), *[(16, 16)] * 36, (32, 16), *[(32, 32)] * 35, (64, 32), *[(64, 64)] * 35]
    starts, draw = recorder()
    srip([torch.randn(out, into, 3, 3) for out, into in convs] + [torch.randn(10, 64)], draw=draw)
    assert sorted(len(start) for start in starts) == [1, 36, 36, 37]


def test_srip_starts_anew_in_every_call_or_from_a_generator():
    w = random(5, 5)
    assert srip(w) != srip(w)
    assert srip(w, generator=torch.Generator().manual_seed(3)) == srip(w, generator=torch.Generator().manual_seed(3))
    assert max(srip(w) for _ in range(20)) <= torch.linalg.matrix_norm(w @ w.T - torch.eye(5), 2) + 1e-9
