"""The work of a step in tensors, ours beside the step written by hand: counted, as times on a shared machine waver."""

from math import prod

import torch
from torch import Tensor
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.bench.kinds import ByHand
from racecar.bench.kinds import Kind, ReverseKind
from racecar.bench.workload import StepOptions, Workload
from racecar_lab.networks.by_name import open_net


class Count(TorchDispatchMode):
    """Elements that operations read and wrote, and those that sums over activations read."""

    def __init__(self, batch: int) -> None:
        super().__init__()
        self.batch, self.elements, self.reduced = batch, 0, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if not func.is_view:
            read, wrote = (
                [one.numel() for one in _pytree.tree_leaves(some) if isinstance(one, Tensor)]
                for some in ((args, kwargs), out)
            )
            self.elements += sum(read) + sum(wrote)
            if sum(wrote) * self.batch < sum(read):  # out of each sample less than one number
                self.reduced += sum(read)
        return out


def work(kind: Kind, workload: Workload) -> Count:
    """Of one step, after a first one."""
    loss = kind.loss(workload)
    loss().backward()
    workload.clear_gradients()
    with Count(workload.batch) as count:
        loss().backward()
    workload.clear_gradients()
    return count


def test_ours_does_no_more_than_the_step_by_hand():
    """Noise floors once took statistics of all inputs of batch norms a second time: a fifth of a step on a CPU."""
    model, x = open_net("vgg7-narrow", batch=16)
    workload = Workload("vgg7-narrow", model, x, StepOptions())
    ours, by_hand = (work(kind(1 / 8), workload) for kind in (ReverseKind, ByHand))
    assert ours.elements <= 1.01 * by_hand.elements
    assert ours.reduced <= 1.01 * by_hand.reduced


def test_a_second_look_at_an_activation_is_counted():
    x = torch.randn(8, 4, 6, 6)
    with Count(8) as count:
        torch.var_mean(x.relu(), [0, 2, 3])
    assert count.reduced == prod(x.shape)
    assert count.elements == 3 * prod(x.shape) + 8
