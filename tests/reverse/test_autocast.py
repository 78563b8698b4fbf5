"""Mixed precision: the reverse pass is as precise as the forward one, terms summed in float32. And channels_last."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from tests.by_hand import Net
from tests.losses import classic
from tests.networks import NETWORKS, call
from tests.steps import assert_same, step

HALVES = {"bf16": (torch.bfloat16, 0.1), "fp16": (torch.float16, 0.02)}
"""dtype, and how far a loss may be from the same one in float32."""
OFF = 0.1
"""How far gradients may be: ReLUs near 0 decide. If only weights and inputs are rounded to fp16, and float64 does the
rest, those of vgg are off by up to 0.065."""

MODELS = ["vgg", "resnet_pad", "mlp_norm", "functional", "bare_weights", "text", "attention", "encoder", "gated"]
MODELS += ["weight_norm", "tied_autoencoder"]


@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight")  # torch's own rms_norm, under autocast
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("half", HALVES)
def test_autocast_is_near_float32(name, half):
    """A bias in the wrong place, or a norm left out, would move the loss much more than rounding does."""
    dtype, tolerance = HALVES[half]
    model, inputs = NETWORKS[name]()
    exact, rr = classic(copy.deepcopy(model), inputs), classic(model, inputs)
    with torch.autocast("cpu", dtype):
        made = step(rr, inputs)
    expected = step(exact, inputs)
    for key in ("loss", *rr.terms):
        assert made.values[key].dtype == torch.float32
        torch.testing.assert_close(made.values[key], expected.values[key], rtol=tolerance, atol=0.05 * tolerance)
    whole = torch.stack([grad.norm() for grad in expected.grads.values()]).norm()
    for key, grad in expected.grads.items():
        assert made.grads[key].dtype == torch.float32
        assert (made.grads[key] - grad).norm() < OFF * whole


@pytest.mark.parametrize("name", ["vgg", "mlp_norm", "attention"])
@pytest.mark.parametrize("half", HALVES)
def test_output_under_autocast_is_the_models(name, half):
    model, inputs = NETWORKS[name]()
    rr = classic(model.eval(), inputs)
    with torch.autocast("cpu", HALVES[half][0]):
        assert torch.equal(rr(inputs)[0], call(model, inputs))


class Wide(TorchDispatchMode):
    """Names of operations that make float32 tensors of at least so many elements."""

    def __init__(self, size):
        super().__init__()
        self.size, self.found = size, set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for one in made if isinstance(made, tuple) else (made,):
            if isinstance(one, torch.Tensor) and one.dtype == torch.float32 and one.numel() >= self.size:
                self.found.add(func.name())
        return made


@pytest.mark.parametrize("layer", ["linear", "conv"])
def test_activations_stay_narrow(layer):
    """No float32 tensor of the size of an activation is made, forward or backward, although biases are float32: only
    sums are wide."""
    torch.manual_seed(0)
    made = {"linear": lambda: nn.Linear(8, 8), "conv": lambda: nn.Conv2d(8, 8, 3, padding=1)}[layer]
    x = torch.randn((512, 8) if layer == "linear" else (16, 8, 6, 6))
    model = nn.Sequential(made(), nn.ReLU(), made(), nn.ReLU(), made())
    rr = classic(model.to(memory_format=torch.channels_last), x)
    x = x.bfloat16().requires_grad_()
    with Wide(x.numel()) as wide:
        with torch.autocast("cpu", torch.bfloat16):
            output, loss = rr(x)
        (output.square().mean() + loss).backward()
    assert wide.found == set()


@pytest.mark.parametrize("scale", ["sum", "mean", "relative"])
@pytest.mark.parametrize("half", HALVES)
def test_terms_are_summed_in_float32(half, scale):
    """Differences are in the precision of the activations; the sum of their squares is beyond fp16's largest number,
    and beyond what bf16 can count to."""
    torch.manual_seed(0)
    dtype = HALVES[half][0]
    x = 30 * torch.randn(64, 256)
    model = nn.Sequential(nn.Linear(256, 256), nn.Softplus(), nn.Linear(256, 32))
    rr = classic(model, x, scale=scale)
    with torch.autocast("cpu", dtype):
        rr(x)
        d, rebuilt = model[:2](x), rr.reconstruct(x)[1]
    assert d.dtype == rebuilt.dtype == dtype
    squares = (d - rebuilt).double().square()
    expected = {"sum": squares.sum(), "mean": squares.mean(), "relative": squares.sum() / d.double().square().sum()}
    assert expected["sum"] > torch.finfo(torch.float16).max
    torch.testing.assert_close(rr.terms["2"].double(), expected[scale], rtol=1e-5, atol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_a_model_that_is_itself_in_another_precision(dtype):
    wide = torch.promote_types(dtype, torch.float32)
    model, x = NETWORKS["vgg_plain"]()
    rr = classic(model.to(dtype), x.to(dtype))
    output, loss = rr(x.to(dtype))
    assert (output.dtype, loss.dtype) == (dtype, wide)
    assert all(term.dtype == wide for term in rr.terms.values())
    loss.backward()
    assert all(p.grad.dtype == dtype and p.grad.isfinite().all() for p in model.features.parameters())


def test_planned_under_autocast_and_used_without():
    model, x = NETWORKS["vgg_plain"]()
    with torch.autocast("cpu", torch.bfloat16):
        rr = classic(model, x)
    torch.testing.assert_close(rr(x)[1], classic(model, x)(x)[1], rtol=0, atol=0)


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight")
def test_compiled_under_autocast():
    """A norm over the batch, one over the features, a gate and a join."""
    torch._dynamo.reset()
    torch.manual_seed(0)

    def gated(m, x):
        h = torch.tanh(m.norm(m.first(x)))
        seen = m.rms(h)
        return h + m.down(F.silu(m.gate(seen)) * m.up(seen))

    layers = {"first": nn.Linear(6, 8), "gate": nn.Linear(8, 6), "up": nn.Linear(8, 6), "down": nn.Linear(6, 8)}
    model, x = Net(gated, **layers, norm=nn.BatchNorm1d(8), rms=nn.RMSNorm(8)), torch.randn(4, 6)
    eager, rr = classic(copy.deepcopy(model), x), classic(model, x)
    fast = torch.compile(rr, backend="eager", fullgraph=True)
    with torch.autocast("cpu", torch.bfloat16):
        assert_same(step(rr, x, fast), step(eager, x), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize(
    "name, fraction", [("vgg", 1.0), ("vgg", 0.5), ("resnet", 0.5), ("densenet", 1.0), ("unet", 0.5)]
)
def test_channels_last(name, fraction):
    model, x = NETWORKS[name]()
    plain = classic(copy.deepcopy(model), x, fraction=fraction)
    rr = classic(model.to(memory_format=torch.channels_last), x, fraction=fraction)
    made = step(rr, x.contiguous(memory_format=torch.channels_last))
    assert_same(made, step(plain, x), rtol=1e-4, atol=1e-4)
