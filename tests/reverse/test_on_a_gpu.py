"""What a GPU computes by kernels of its own is what the CPU computes: masks, nested tensors, recurrent networks."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

from racecar import Racecar
from tests.by_hand import Net, lively
from tests.reverse.mask_cases import SETTINGS, UNEQUAL, encoder, same, step
from tests.watch import test_nested as nested

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors"),
]
X = torch.randn(4, UNEQUAL.shape[1], 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def masked(m: Any, x: Any, real: Any) -> Any:
    return m.encoder(x, src_key_padding_mask=~real)


def gated(m: Any, x: Any) -> Any:
    return m.out(nn.functional.glu(m.wide(x)))


def recurrent(kind: type[nn.Module], **options: Any) -> nn.Module:
    torch.manual_seed(0)
    return lively(kind(8, 6, batch_first=True, num_layers=2, bidirectional=True, **options).double())


CASES = {
    "padding": lambda: (Net(masked, encoder=encoder(True)), (X, UNEQUAL)),
    "lstm": lambda: (recurrent(nn.LSTM), (X,)),
    "lstm with projections": lambda: (recurrent(nn.LSTM, proj_size=3), (X,)),
    "gru": lambda: (recurrent(nn.GRU), (X,)),
    "rnn": lambda: (recurrent(nn.RNN), (X,)),
    "glu": lambda: (Net(gated, wide=nn.Linear(8, 12), out=nn.Linear(6, 3)).double(), (X,)),
    **{
        name: lambda function=function, data=data: (nested.net(function), (nested.jagged(data()),))
        for name, (function, data) in nested.MODELS.items()
    },
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("settings", SETTINGS, ids=lambda one: "-".join(map(str, one.values())))
def test_as_on_the_cpu(name, settings):
    """Loss, terms and gradients of one step, float64."""
    net, inputs = CASES[name]()
    there, moved = copy.deepcopy(net).cuda(), tuple(one.cuda() for one in inputs)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        loss, terms, grads = step(Racecar(there, moved, **settings), *moved)
    found = (
        loss.cpu(),
        {m: one.cpu() for m, one in terms.items()},
        {n: g if g is None else g.cpu() for n, g in grads.items()},
    )
    same(found, step(Racecar(net, inputs, **settings), *inputs))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_a_recurrent_network_learns_in_half_precision(kind):
    """Autocast runs cuDNN's own cells; the loss stays float32 and finite."""
    net = recurrent(kind).float().cuda()
    x = X.float().cuda()
    with torch.autocast("cuda", torch.bfloat16):
        (output, *_), loss = Racecar(net, x, weight=1.0)(x)
    assert loss.dtype == torch.float32
    (output.float().square().mean() + loss).backward()
    assert all(one.grad is not None and one.grad.isfinite().all() for one in net.parameters())
