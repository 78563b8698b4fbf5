"""A compiled step with a slice of the batch keeps little more for the backward pass than a plain step."""

import functools

import pytest
import torch
import torch.nn.functional as F
from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.fx_passes.post_grad import remove_noop_ops

from racecar.reverse.terms import ROWS, size, squared_error, totals
from racecar_lab.networks.resnet import Basic
from racecar_lab.networks.vgg import vgg
from racecar_lab.networks.vit import EncoderBlock, PatchEmbed
from tests.by_hand import Net
from tests.losses import classic

BATCH = 16


def residual(m, x):
    return m.head(F.max_pool2d(m.block(x), 2).mean((2, 3)))


def transformer(m, x):
    return m.head(m.norm(m.block(m.embed(x))).mean(1))


NETS = {
    "residual": lambda: Net(residual, block=Basic(3, 8, 1), head=nn.Linear(8, 10)),
    "transformer": lambda: Net(
        transformer, embed=PatchEmbed(8, 24), block=EncoderBlock(24, 3), norm=nn.LayerNorm(24), head=nn.Linear(24, 10)
    ),
}


def compiled_as_by_inductor(loss, graphs):
    """Compile with inductor's decompositions and partitioner; ``graphs`` gets the graphs of both passes."""

    def keep(module, name):
        graphs[name] = list(module.graph.nodes)
        return make_boxed_func(module.forward)

    backend = aot_autograd(
        fw_compiler=lambda module, inputs: remove_noop_ops(module.graph) or keep(module, "forward"),
        bw_compiler=lambda module, inputs: keep(module, "backward"),
        partition_fn=lambda joint, inputs, **options: min_cut_rematerialization_partition(
            joint, inputs, compiler="inductor", **options
        ),
        decompositions=select_decomp_table(),
    )
    torch._dynamo.reset()
    return torch.compile(loss, backend=backend, fullgraph=True)


def kept(loss, given):
    """Tensors that the compiled forward pass holds for the backward pass, but for weights and inputs, ``given``."""
    compiled, held = compiled_as_by_inductor(loss, {}), []

    def pack(tensor):
        held.append(tensor)
        return tensor

    compiled()  # a vjp is not traced under hooks
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        compiled()
    theirs = {place(tensor) for tensor in given}
    return [tensor for tensor in held if place(tensor) not in theirs]


def place(tensor):
    return tensor.untyped_storage().data_ptr()


def memory(tensors):
    """Bytes of the storages of some tensors, each storage once."""
    return sum({place(tensor): tensor.untyped_storage().nbytes() for tensor in tensors}.values())


@functools.cache
def graphs_of(statistics=True, **settings):
    """Of both passes of a small net, with or without running statistics of its reverse pass."""
    model, x = vgg((8, "M"), size=8).to(memory_format=torch.channels_last), torch.randn(BATCH, 3, 8, 8)
    x, graphs = x.contiguous(memory_format=torch.channels_last), {}
    rr = classic(model, x, **settings)
    if not statistics:
        rr._engine.statistics = None
    compiled_as_by_inductor(lambda: rr(x)[1], graphs)().backward()
    assert bool(rr.reverse_statistics.known) == statistics
    return graphs


def count(nodes, operator):
    return sum(str(node.target).startswith(operator) for node in nodes)


@pytest.mark.soak
def test_nothing_is_added_by_index():
    """As the gradient of F.interpolate is, for a compiler, with atomic operations."""
    backward = graphs_of(True, fraction=1 / 8, scale="relative")["backward"]
    assert count(backward, "aten.convolution_backward") > 0
    assert count(backward, "aten.index_put") == count(backward, "aten._unsafe_index_put") == 0


@pytest.mark.soak
def test_nothing_is_summed_twice():
    """√Σ d² is not worked out again in the backward pass, which has no more sums than with a scale that needs none; nor
    are the statistics of batch norms, which have two sums each, of the gradient."""
    relative, mean = (graphs_of(True, fraction=1 / 8, scale=scale)["backward"] for scale in ("relative", "mean"))
    assert count(relative, "aten.sum") == count(mean, "aten.sum") > 0
    assert count(relative, "aten.mean") == count(relative, "aten.var_mean") == 0


@pytest.mark.soak
def test_running_statistics_cost_no_sum():
    """The statistics that a norm is applied by are the ones that are kept, and the backward pass has nothing to do."""
    with_them, without = (graphs_of(some, fraction=1 / 8, scale="relative") for some in (True, False))
    for name in ("forward", "backward"):
        for kind in ("aten.var_mean", "aten.sum", "aten.mean."):
            assert count(with_them[name], kind) == count(without[name], kind)
    assert count(without["forward"], "aten.var_mean") > 0


@pytest.mark.parametrize("width", [64, 7])
def test_sums_go_along_memory(width):
    """inductor orders a sum before it knows that d' will have its channels last. One over an activation has so many
    rows, if they are of one length, that it needs no second kernel; that of all layers is the one more."""
    made = (torch.randn(2, 8, 5, width).contiguous(memory_format=torch.channels_last) for _ in range(2))
    (d, reverse), graphs = [one.requires_grad_() for one in made], {}

    def term():
        errors, sizes = [squared_error(d, reverse, None)] * 2, [size(d, None)] * 2
        return (totals(errors, torch.sum) / totals(sizes, torch.linalg.vector_norm)).sum()

    found = compiled_as_by_inductor(term, graphs)()
    found.backward()
    d, reverse, gradient = d.detach(), reverse.detach(), d.grad
    torch.testing.assert_close(found.detach(), 2 * (d - reverse).square().sum() / d.norm())
    torch.testing.assert_close(gradient, 4 * (d - reverse) / d.norm())
    sums = [node.args[0].meta["val"] for node in graphs["forward"] if str(node.target).startswith("aten.sum")]
    rows = (ROWS, d.numel() // ROWS) if d.numel() % ROWS == 0 else (2, 5, width, 8)
    assert [tuple(one.shape) for one in sums] == [rows, rows, (2, ROWS), (2, ROWS), (2,)]
    assert all(one.is_contiguous() for one in sums)


@pytest.mark.soak
@pytest.mark.parametrize("name, fraction", [("residual", 1 / 16), ("transformer", 1 / 8)])
def test_a_slice_keeps_little(name, fraction):
    """And no two tensors share a storage: inductor would overwrite one while the other is still needed, and gradients
    would be wrong."""
    torch.manual_seed(0)
    model, x, y = NETS[name](), torch.randn(BATCH, 3, 32, 32), torch.randint(10, (BATCH,))
    rr = classic(model, x, fraction=fraction)

    def plain():
        with torch.autocast("cpu", torch.bfloat16):
            return F.cross_entropy(model(x).float(), y)

    def ours():
        with torch.autocast("cpu", torch.bfloat16):
            output, loss = rr(x)
            return F.cross_entropy(output.float(), y) + loss

    # A forward pass keeps two tensors or more for each layer, the reverse pass a half of what its slice would keep so.
    given = [x, y, *model.parameters(), *model.buffers()]
    held, usual = kept(ours, given), kept(plain, given)
    assert memory(held) < (1 + fraction) * memory(usual)
    shared, theirs = (len(some) - len(set(map(place, some))) for some in (held, usual))
    assert shared <= theirs


@pytest.mark.soak
def test_a_slice_with_a_vjp():
    """A slice with a vjp, which is not recomputed: gradients equal the eager ones, and no two kept tensors share a
    storage."""
    torch.manual_seed(0)
    parts = {name: nn.Linear(6, 6) for name in "abc"}
    model, x = Net(lambda m, x: m.c(torch.tanh(m.b(m.a(x).cumsum(1)))), **parts), torch.randn(BATCH, 6)
    rr = classic(model, x, fraction=0.5)

    def plain():
        return model(x).square().mean()

    def ours():
        output, loss = rr(x)
        return output.square().mean() + loss

    expected, found = (
        torch.autograd.grad(one(), tuple(model.parameters())) for one in (ours, compiled_as_by_inductor(ours, {}))
    )
    torch.testing.assert_close(found, expected)
    given = [x, *model.parameters()]
    shared, theirs = (len(some) - len(set(map(place, some))) for some in (kept(ours, given), kept(plain, given)))
    assert shared <= theirs
