"""What a compiled step keeps until its backward pass: with a slice of the batch, little more than a plain step."""

import pytest
import torch
import torch.nn.functional as F
from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
from torch._dynamo.backends.common import aot_autograd
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.fx_passes.post_grad import remove_noop_ops

from racecar import Racecar
from racecar.lab.networks.resnet import Bottleneck, ResNet
from racecar.lab.networks.vgg import vgg
from racecar.lab.networks.vit import ViT

BATCH = 16
NETS = {
    "vgg": lambda: vgg((8, 8, "M", 16, 16, "M", 32)),
    "resnet": lambda: ResNet(Bottleneck, (2, 1), width=4, classes=10, large=False),
    "vit": lambda: ViT(32, 4, 24, 6, 3, 10),
}


def kept(loss, given):
    """Tensors that the compiled forward pass holds for the backward pass, but for weights and inputs, ``given``."""
    backend = aot_autograd(
        fw_compiler=lambda module, inputs: make_boxed_func(remove_noop_ops(module.graph) or module.forward),
        bw_compiler=lambda module, inputs: make_boxed_func(module.forward),
        partition_fn=lambda joint, inputs, **options: min_cut_rematerialization_partition(
            joint, inputs, compiler="inductor", **options
        ),
        decompositions=select_decomp_table(),
    )
    torch._dynamo.reset()
    compiled = torch.compile(loss, backend=backend, fullgraph=True)
    held = []

    def pack(tensor):
        held.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        compiled()
    theirs = {place(tensor) for tensor in given}
    return [tensor for tensor in held if place(tensor) not in theirs]


def place(tensor):
    return tensor.untyped_storage().data_ptr()


def memory(tensors):
    """Bytes that are really held: a view holds all that it is a part of."""
    return sum({place(tensor): tensor.untyped_storage().nbytes() for tensor in tensors}.values())


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("fraction", [1 / 8, 1 / 16])
def test_a_slice_keeps_little(name, fraction):
    """And no tensor beside another that it is a part of: torch's compiler would write over the one while it still needs
    the other, and gradients would be wrong."""
    torch.manual_seed(0)
    model, x, y = NETS[name](), torch.randn(BATCH, 3, 32, 32), torch.randint(10, (BATCH,))
    rr = Racecar(model, x, fraction=fraction)

    def plain():
        with torch.autocast("cpu", torch.bfloat16):
            return F.cross_entropy(model(x).float(), y)

    def ours():
        with torch.autocast("cpu", torch.bfloat16):
            output, loss = rr(x)
            return F.cross_entropy(output.float(), y) + loss

    # A forward pass keeps two tensors or more for each layer, the way back a half of what its slice would keep so.
    given = [x, y, *model.parameters(), *model.buffers()]
    held, usual = kept(ours, given), kept(plain, given)
    assert memory(held) < (1 + fraction) * memory(usual)
    shared, theirs = (len(some) - len(set(map(place, some))) for some in (held, usual))
    assert shared <= theirs
