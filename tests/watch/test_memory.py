"""Memory: a step keeps no tensor alive, even without the garbage collector, and a Racecar keeps only numbers."""

import gc
import weakref

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree

from tests.cases import CASES
from tests.losses import classic
from tests.networks import NETWORKS, SOME, call, soak_others
from tests.steps import task

OURS = {f"case {name}": lambda build=build: build()[:2] for name, build in CASES.items()}


class Made(TorchFunctionMode):
    """Weak references to every tensor of two or more dimensions that a torch call made."""

    def __init__(self):
        super().__init__()
        self.refs = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.refs += [weakref.ref(one) for one in _pytree.tree_leaves(out) if isinstance(one, Tensor) and one.dim() > 1]
        return out

    def left(self, *known):
        """Shapes of those that are still there, but for tensors of the model and its inputs."""
        assert self.refs
        known = {id(one) for one in _pytree.tree_leaves(known)}
        return [one.shape for ref in self.refs if (one := ref()) is not None and id(one) not in known]


@pytest.fixture(scope="module")
def no_collector():
    gc.disable()
    yield
    gc.enable()


SLICED = {"mode": "layerwise", "gradient": "weights", "fraction": 0.5}


@pytest.mark.parametrize("name", [*soak_others(), *OURS])
def test_nothing_outlives_a_step(name, no_collector):
    """Planning, steps and reconstructions free every tensor at once; a reference cycle would hold all activations."""
    model, x = (NETWORKS | OURS)[name]()
    settings = SLICED if name in SOME else {}
    call(model, x)  # torch imports some parts of itself at their first use, and keeps frames of it
    own = (list(model.parameters()), list(model.buffers()), x)
    with Made() as planned:
        rr = classic(model, x, **settings)
    assert planned.left(own) == []
    with Made() as stepped:
        output, loss = call(rr, x)
        (task(output) + loss).backward()
        del output, loss
    assert stepped.left(own) == []
    with Made() as rebuilt:
        call(rr.reconstruct, x)
    assert rebuilt.left(own) == []


@pytest.fixture
def alive():
    """Counts the tensors of two and more dimensions that were made since the test began and are still there."""
    gc.collect()
    gc.freeze()  # what is there already is not looked at again, which makes counting quick, also for the next test

    def count():
        gc.collect()
        return sum(issubclass(type(one), torch.Tensor) and one.dim() > 1 for one in gc.get_objects())

    return count


@pytest.mark.parametrize("name", ["vgg", "resnet_pad", "encoder", "weight_norm", "text", "functional", "branching"])
def test_memory(name, alive):
    """A Racecar holds no activation, only numbers; without it, nothing is left."""
    model, x = NETWORKS[name]()
    other = -x if x.is_floating_point() else x.flip(1)
    before = alive()
    rr = classic(model, x)
    assert before > 2
    for data in (x, other, x):
        rr(data)
    assert alive() == before
    gone = [weakref.ref(one) for one in (rr, rr.plan, *rr.modules())]
    del rr, model
    assert alive() == 2  # the data
    assert [ref() for ref in gone] == [None] * len(gone)
    left = {type(one) for one in gc.get_objects() if str(type(one).__module__).startswith("racecar")}
    assert not left
