"""What a compiled step keeps until its backward pass: with a slice of the batch, little more than a plain step."""

import pytest
import torch
import torch.nn.functional as F
from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
from torch._dynamo.backends.common import aot_autograd
from torch._inductor.decomposition import select_decomp_table

from racecar import Racecar
from racecar.lab.networks.resnet import Bottleneck, ResNet
from racecar.lab.networks.vgg import VGG16, vgg
from racecar.lab.networks.vit import ViT

BATCH = 16
NETS = {
    "vgg": lambda: vgg(VGG16[:7]),
    "resnet": lambda: ResNet(Bottleneck, (2, 1), width=16, classes=10, large=False),
    "vit": lambda: ViT(32, 4, 96, 3, 3, 10),
}


def kept(loss):
    """Bytes that the compiled forward pass hands to the backward pass, weights not counted."""
    found = []

    def backward(module, inputs):
        values = [node.meta["val"] for node in module.graph.nodes if node.op == "placeholder" if is_made(node)]
        found.append(sum(value.numel() * value.element_size() for value in values))
        return make_boxed_func(module.forward)

    def is_made(node):
        return isinstance(node.meta.get("val"), torch.Tensor) and "primals" not in node.name

    backend = aot_autograd(
        fw_compiler=lambda module, inputs: make_boxed_func(module.forward),
        bw_compiler=backward,
        partition_fn=lambda joint, inputs, **options: min_cut_rematerialization_partition(
            joint, inputs, compiler="inductor", **options
        ),
        decompositions=select_decomp_table(),
    )
    torch._dynamo.reset()
    torch.compile(loss, backend=backend, fullgraph=True)().backward()
    return found[0]


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("fraction", [1 / 8, 1 / 16])
def test_a_slice_keeps_little(name, fraction):
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
    assert kept(ours) < (1 + fraction) * kept(plain)
