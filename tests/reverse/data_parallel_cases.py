"""What one of two processes does with a Racecar and a DistributedDataParallel: which calls are averaged, which refused.

Each returns the gradients that its last backward pass left, or the error.
"""

import copy
import gc
import io

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._composable.replicate import replicate
from torch.nn.parallel import DistributedDataParallel

from racecar import Racecar, Unsupported
from racecar.functional import reverse_loss

X = torch.rand(2, 4, 5, generator=torch.Generator().manual_seed(1))
"""One batch for each process."""
SETTINGS = {"weight": 1.0, "gradient": "both"}


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3))


def made(x):
    model = net()
    return model, Racecar(model, x, **SETTINGS)


def step(model, returned):
    """The gradients of a backward pass through what a call returned, or the message of the error."""
    output, loss = returned
    model.zero_grad()
    try:
        ((output**2).mean() + loss).backward()
    except Unsupported as error:
        return str(error)
    return [p.grad.clone() for p in model.parameters()]


# --- past the wrapper: refused -----------------------------------------------------------------------------------


def beside(x):
    model, rr = made(x)
    ddp = DistributedDataParallel(model)  # noqa: F841, the name keeps it
    return step(model, rr(x))


def made_after(x):
    model = net()
    ddp = DistributedDataParallel(model, static_graph=True)
    rr = Racecar(ddp.module, x, **SETTINGS)
    return step(model, rr(x))


def past_its_own(x):
    """The wrapper is around the Racecar, and is not called; it was in the step before."""
    model, rr = made(x)
    ddp = DistributedDataParallel(rr)
    step(model, ddp(x))
    return step(model, rr(x))


def part_of_what_is_wrapped(x):
    model, rr = made(x)
    ddp = DistributedDataParallel(nn.Sequential(model, nn.Linear(3, 1)), find_unused_parameters=True)  # noqa: F841
    return step(model, rr(x))


def switched_off(x):
    """A call past the wrapper is refused even without a reverse pass."""
    model, rr = made(x)
    rr.weight = 0
    ddp = DistributedDataParallel(model)  # noqa: F841
    return step(model, rr(x))


def wrapped_later(x):
    """Found in the next call whose number is a power of 2."""
    model, rr = made(x)
    step(model, rr(x))
    ddp = DistributedDataParallel(model)  # noqa: F841
    return step(model, rr(x))


def pure(x):
    model = net()
    ddp = DistributedDataParallel(model)  # noqa: F841
    return step(model, reverse_loss(model, x, **SETTINGS))


def copied(x):
    """A copy is another model, around which is no wrapper; a wrapper of its own is found."""
    model, rr = made(x)
    ddp = DistributedDataParallel(model)  # noqa: F841
    rr(x)
    other = copy.deepcopy(rr)
    assert not isinstance(step(other.model, other(x)), str)
    another = DistributedDataParallel(other.model)  # noqa: F841
    torch.save(other, io.BytesIO())
    return step(other.model, other(x))


REFUSED = {
    one.__name__: one
    for one in (beside, made_after, past_its_own, part_of_what_is_wrapped, switched_off, wrapped_later, pure, copied)
}


# --- averaged: as one process ------------------------------------------------------------------------------------


def the_wrapper_first(x):
    """One backward pass through both calls, as in a Trainer whose loss adds ours."""
    model, rr = made(x)
    ddp = DistributedDataParallel(model)
    for _ in range(2):
        found = step(model, (ddp(x), rr(x)[1]))
    return found


def the_wrapper_last(x):
    model, rr = made(x)
    ddp = DistributedDataParallel(model, static_graph=True)
    for _ in range(2):
        _, loss = rr(x)
        found = step(model, (ddp(x), loss))
    return found


def around_the_wrapper(x):
    model = net()
    rr = Racecar(DistributedDataParallel(model), x, **SETTINGS)
    return step(model, rr(x))


def replicated(x):
    """The other data parallel of torch, by hooks of the model."""
    model, rr = made(x)
    return step(replicate(model), rr(x))


AVERAGED = {one.__name__: one for one in (the_wrapper_first, the_wrapper_last, around_the_wrapper, replicated)}


# --- not averaged, and rightly so --------------------------------------------------------------------------------


def no_sync(x):
    model, rr = made(x)
    with DistributedDataParallel(model).no_sync():
        returned = rr(x)
    return step(model, returned)


def a_group_of_one(x):
    model, rr = made(x)
    groups = [dist.new_group([rank]) for rank in range(2)]
    ddp = DistributedDataParallel(model, process_group=groups[dist.get_rank()])  # noqa: F841
    return step(model, rr(x))


def unwrapped(x):
    """The wrapper is gone, though Python has not yet collected it."""
    model, rr = made(x)
    gc.disable()
    ring = [DistributedDataParallel(model)]
    ring.append(ring)
    del ring
    found = step(model, rr(x))
    gc.enable()
    return found


def of_another_model(x):
    model, rr = made(x)
    ddp = DistributedDataParallel(net())  # noqa: F841
    return step(model, rr(x))


def looked_at(x):
    """Calls whose gradient reaches no weight are allowed: evaluation, a gradient of the input."""
    model, rr = made(x)
    ddp = DistributedDataParallel(model)
    with torch.no_grad():
        rr(x)
    rr(x)
    given = x.clone().requires_grad_()
    output, loss = rr(given)
    assert torch.autograd.grad(output.sum() + loss, given)[0].any()
    with ddp.no_sync():
        return step(model, rr(x))


ALONE = {one.__name__: one for one in (no_sync, a_group_of_one, unwrapped, of_another_model, looked_at)}


CASES = REFUSED | AVERAGED | ALONE


def expected(name):
    """The gradients of one process: for each rank."""
    model, rr = made(X[0])
    own = [step(model, rr(x)) for x in X]
    mean = [(first + last) / 2 for first, last in zip(*own, strict=True)]
    return own if name in ALONE else [mean, mean]
