"""A compiled Racecar beside a DistributedDataParallel; tests/reverse/test_distributed.py has two real processes."""

import warnings

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore

from racecar import Racecar


@pytest.fixture(autouse=True)
def one_of_two():
    """Make this process believe that it is one of two."""
    torch._dynamo.reset()
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield
    dist.destroy_process_group()
    torch._dynamo.reset()


def test_a_compiled_call_past_the_wrapper_warns():
    """A compiled call cannot check the backward pass, so it warns, an eager one not; there is still one graph."""
    model, x = nn.Linear(3, 2), torch.rand(4, 3)
    rr = Racecar(model, x)
    compiled = torch.compile(rr, backend="eager", fullgraph=True)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        ddp = DistributedDataParallel(compiled)
        output, loss = ddp(x)
    assert not [one for one in heard if "Racecar" in str(one.message)]
    torch._dynamo.reset()
    with pytest.warns(UserWarning, match=r"ddp = DistributedDataParallel\(rr\), and call ddp\(x\)"):
        torch.testing.assert_close(compiled(x), (output, loss))
