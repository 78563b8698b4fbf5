"""Running statistics of what batch norms see in the reverse pass, against the recursion written by hand."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from racecar import functional
from tests.by_hand import Net, close, undo_linear
from tests.losses import classic
from tests.reverse.reverse_cases import back, batches, check, net

KINDS = {"0.1": {}, "0.6": {"momentum": 0.6}, "None": {"momentum": None}, "plain": {"affine": False}}


def recursion(model, seen):
    """r ← r + max(m, 1/n) (s − r), with the unbiased variance; a plain average for momentum None."""
    momentum = {"3:0": model[1].momentum or 0.0, "5:0": model[4].momentum}
    kept = {}
    for n, call in enumerate(seen, 1):
        for key, y in call.items():
            new = y.mean(0), y.var(0, unbiased=True)
            f = max(momentum[key], 1 / n)
            kept[key] = new if n == 1 else tuple(r + f * (s - r) for r, s in zip(kept[key], new, strict=True))
    return kept


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["full", "layerwise"])
@pytest.mark.parametrize("fraction", [1.0, 0.5])
def test_by_hand(kind, mode, fraction):
    """Training calls keep them; in evaluation the loss and what is rebuilt use them."""
    model = net(**KINDS[kind])
    mirror, seen = copy.deepcopy(model), []
    rr = classic(model, batches()[0], mode=mode, scale="mean", fraction=fraction)
    for x in batches():
        with torch.no_grad():
            seen.append(back(mirror, x, mode == "layerwise", round(8 * fraction))[0])
        rr(x)
    with torch.no_grad():
        kept = recursion(model, seen)
        check(rr, kept, 4)
        rr.eval(), mirror.eval()
        x = batches(1)[0] * 2
        _, made, ds = back(mirror, x, mode == "layerwise", round(8 * fraction), kept)
        rr(x)
        close(list(rr.terms.values()), [F.mse_loss(*pair) for pair in zip(made, ds, strict=True)])
        close(rr.reconstruct(x), back(mirror, x, mode == "layerwise", 8, kept)[1])
        check(rr, kept, 4)


@pytest.mark.soak
@torch.no_grad()
def test_compiled():
    """Evaluation uses them, and leaves them as they are. (With gradients, on a slice and by inductor: test_compile.py;
    what they cost: test_compiled.py.)"""
    model = net()
    mirror, seen = copy.deepcopy(model), []
    rr = classic(model, batches()[0], mode="full")
    torch._dynamo.reset()
    fast = torch.compile(rr, backend="eager", fullgraph=True)
    for i, x in enumerate(batches()):
        seen.append(back(mirror, x, False, 8)[0])
        with torch._dynamo.config.patch(error_on_recompile=i > 0):
            fast(x)
    check(rr, recursion(model, seen), 4)
    rr.eval()
    close(fast(x)[1], rr(x)[1])
    check(rr, recursion(model, seen), 4)


def test_none_before_the_first_training_call():
    model = net().eval()
    rr = classic(model, batches()[0], mode="full")
    own = {"3:0": (model[1].running_mean, model[1].running_var), "5:0": (model[4].running_mean, model[4].running_var)}
    x = batches()[0]
    close(rr.reconstruct(x), back(model, x, False, 8, own)[1])
    rr(x)
    assert not rr.reverse_statistics.known
    rr.train()(x)
    assert rr.reverse_statistics.known


def test_each_reader_of_a_norm_has_its_own():
    """Both see other reverse data; a single value per channel leaves nothing."""
    torch.manual_seed(0)
    parts = {"a": nn.Linear(5, 4), "norm": nn.BatchNorm1d(4), "b": nn.Linear(4, 3), "c": nn.Linear(4, 2)}
    model = Net(lambda m, x: (h := m.norm(m.a(x)), m.b(h), m.c(h))[1:], **parts).double()
    x = batches()[0]
    rr = classic(model, x)
    rr(x)
    with torch.no_grad():
        h = copy.deepcopy(model.norm)(model.a(x))
        for name in "bc":
            layer = getattr(model, name)
            y = undo_linear(layer, layer(h))
            close(rr.reverse_statistics.export()[f"{name}:0.mean"], y.mean(0))
            close(rr.reverse_statistics.export()[f"{name}:0.var"], y.var(0))
    before = rr.reverse_statistics.export()
    rr.model.a.weight.requires_grad_(True)
    sliced = classic(model, x, fraction=1 / 8)
    sliced(x)
    assert not sliced.reverse_statistics.known
    close(rr.reverse_statistics.export(), before)


def functional_norm(m, x):
    return m.last(F.batch_norm(m.first(x), m.mean, m.var, training=m.training, momentum=0.3))


NORMS = {
    "functional": lambda: Net(functional_norm, first=nn.Linear(5, 4), last=nn.Linear(4, 3)),
    "sync": lambda: nn.Sequential(nn.Linear(5, 4), nn.SyncBatchNorm(4, momentum=0.3), nn.Linear(4, 3)),
    "gated": lambda: Net(
        lambda m, x: m.last(m.norm(h := m.first(x)) * m.gate(h).sigmoid()),
        first=nn.Linear(5, 4), norm=nn.BatchNorm1d(4, momentum=0.3), gate=nn.BatchNorm1d(4, momentum=0.3),
        last=nn.Linear(4, 3),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NORMS)
def test_other_spellings(name):
    torch.manual_seed(0)
    model = NORMS[name]().double()
    if name == "functional":
        model.mean, model.var = torch.zeros(4, dtype=torch.float64), torch.ones(4, dtype=torch.float64)
    rr, seen = classic(model, batches()[0], mode="full"), []
    last = model[2] if name == "sync" else model.last
    for x in batches():
        output, _ = rr(x)
        seen.append(undo_linear(last, output).detach())
    found, n = rr.reverse_statistics.export(), 0
    mean, var = seen[0].mean(0), seen[0].var(0)
    for n, y in enumerate(seen[1:], 2):
        f = max(0.3, 1 / n)
        mean, var = mean + f * (y.mean(0) - mean), var + f * (y.var(0) - var)
    keys = {key.rpartition(".")[0] for key in found}
    assert len(keys) == (2 if name == "gated" else 1)
    for key in keys:
        close((found[f"{key}.mean"], found[f"{key}.var"]), (mean, var))


def test_norms_without_running_statistics_keep_none():
    model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 3)).double()
    rr = classic(model, x := batches()[0])
    before = rr(x)[1]
    close(rr.eval()(x)[1], before)
    assert not rr.reverse_statistics.known


def test_state():
    """In no state dict, yet moved, copied, pickled, exported and loaded."""
    model, x = net(), batches()[0]
    keys = list(model.state_dict())
    rr = classic(model, x, mode="full")
    for one in batches():
        rr(one)
    assert list(model.state_dict()) == keys
    assert list(rr.state_dict()) == [f"model.{key}" for key in keys]
    assert [id(p) for p in rr.parameters()] == [id(p) for p in model.parameters()]
    found, loss = rr.reverse_statistics.export(), rr.eval()(x)[1]
    assert loss != classic(model, x, mode="full")(x)[1]
    for other in (copy.deepcopy(rr), pickle.loads(pickle.dumps(rr))):
        close(other.reverse_statistics.export(), found)
        close(other(x)[1], loss)
        other.train()(x)
        assert other.reverse_statistics.export()["3:0.count"] == 5
    assert rr.reverse_statistics.export()["3:0.count"] == 4
    other = classic(copy.deepcopy(model), x, mode="full")
    other.reverse_statistics.load(found)
    close(other(x)[1], loss)
    other.float()
    assert {t.dtype for t in other.reverse_statistics.export().values()} == {torch.float32, torch.int64}
    other.to("meta")
    assert {t.device.type for t in other.reverse_statistics.buffers()} == {"meta"}


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda found: found.pop("3:0.var"), "nothing for '3:0.var'"),
        (lambda found: found.update({"7:0.mean": torch.zeros(4)}), "no place for '7:0.mean'"),
        (lambda found: found.update({"5:0.mean": torch.zeros(4)}), r"'5:0.mean' has shape \(4,\), not \(6,\)"),
    ],
)
def test_a_dict_that_does_not_fit(change, message):
    rr = classic(net(), x := batches()[0])
    rr(x)
    before, found = rr.reverse_statistics.export(), rr.reverse_statistics.export()
    change(found)
    with pytest.raises(ValueError, match=f"do not fit: .*{message}"):
        rr.reverse_statistics.load(found)
    close(rr.reverse_statistics.export(), before)


def test_what_leaves_them_alone():
    """Reconstructions, evaluation, the pure function, torch.func with buffers of its own, a weight of 0."""
    model, x = net(), batches()[0]
    rr = classic(model, x)
    rr(x)
    before = rr.reverse_statistics.export()
    rr.reconstruct(2 * x)
    functional.reverse_loss(model, 2 * x)
    state = {name: p.detach() for name, p in rr.named_parameters()}
    own = {f"model.{name}": buffer.clone() for name, buffer in model.named_buffers()}
    torch.func.grad(lambda p, b: torch.func.functional_call(rr, (p, b), (2 * x,))[1])(state, own)
    torch.func.vmap(lambda x: rr.eval()(x)[1])(torch.stack([x, 2 * x]))
    rr.weight = 0
    rr.train()(2 * x)
    close(rr.reverse_statistics.export(), before)
    rr.weight = {"0": 1}  # fewer layers, then all again: all of them go on
    rr(2 * x)
    rr.weight = 1
    rr(2 * x)
    assert rr.reverse_statistics.export()["5:0.count"] >= 2


def test_saved_with_safetensors(tmp_path):
    from safetensors.torch import load_file, save_file

    rr = classic(net(), x := batches()[0])
    rr(x)
    save_file(rr.reverse_statistics.export(), tmp_path / "reverse.safetensors")
    other = classic(net(), x)
    other.reverse_statistics.load(load_file(tmp_path / "reverse.safetensors"))
    close(other.reverse_statistics.export(), rr.reverse_statistics.export())
    torch.save(rr.reverse_statistics.export(), io.BytesIO())
