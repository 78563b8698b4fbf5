"""Running statistics of what batch norms see in the reverse pass, against the recursion written by hand."""

import copy
import io
import pickle

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

from racecar import Racecar, functional
from racecar.inspect import activations, calibrate, invertibility, leakage, singular_vectors
from racecar.run.reverse_statistics import ReverseStatistics
from tests.by_hand import Net, close, lively, undo_linear
from tests.losses import classic
from tests.run.test_compiled import compiled_as_by_inductor, count

KINDS = {"0.1": {}, "0.6": {"momentum": 0.6}, "None": {"momentum": None}, "plain": {"affine": False}}


def net(**norm):
    """Linear → norm → tanh → linear → norm → linear, in float64."""
    torch.manual_seed(0)
    parts = nn.Linear(5, 4), nn.BatchNorm1d(4, **norm), nn.Tanh(), nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)
    model = nn.Sequential(*parts).double()
    return model if norm.get("affine") is False else lively(model)


def batches(count=4, size=8):
    random = torch.Generator().manual_seed(1)
    return [torch.randn(size, 5, generator=random, dtype=torch.float64) + i for i in range(count)]


def standard(norm, x, mean, var):
    x = (x - mean) / (var + norm.eps).sqrt()
    return x if norm.weight is None else x * norm.weight + norm.bias


def back(model, x, layerwise, samples, given=None):
    """What both norms see in the reverse pass, d'_m of all layers: by the statistics of the batch, or by given ones."""
    first, norm1, _, second, norm2, last = model
    d1 = x
    d2 = torch.tanh(norm1(first(d1)))
    d3 = norm2(second(d2))
    d1, d2, d3, d4 = (d[:samples] for d in (d1, d2, d3, last(d3)))

    def again(norm, y, key):
        mean, var = (y.mean(0), y.var(0, unbiased=False)) if given is None else given[key]
        return standard(norm, y, mean, var)

    seen2 = undo_linear(last, d4)
    back3 = again(norm2, seen2, "5:0")
    seen1 = undo_linear(second, d3 if layerwise else back3)
    back2 = torch.tanh(again(norm1, seen1, "3:0"))
    return {"3:0": seen1, "5:0": seen2}, [undo_linear(first, d2 if layerwise else back2), back2, back3], [d1, d2, d3]


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


def check(rr, kept, calls, tolerance=1e-9):
    found = rr.reverse_statistics.export()
    assert set(found) == {f"{key}.{name}" for key in kept for name in ("mean", "var", "count")}
    for key, (mean, var) in kept.items():
        close(found[f"{key}.mean"], mean, tolerance)
        close(found[f"{key}.var"], var, tolerance)
        assert found[f"{key}.count"] == calls


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


def summed(graphs):
    """How often each pass of a compiled step goes through its data for a sum."""
    kinds = ("var_mean", "sum", "mean.")
    return [count(graphs[name], f"aten.{kind}") for name in ("forward", "backward") for kind in kinds]


@pytest.mark.parametrize("fraction, grad", [(0.5, True), (1.0, False)])
def test_compiled(fraction, grad):
    """And a compiler sums nothing for them: the statistics that a norm is applied by are the ones that are kept, and
    the backward pass has nothing to do."""
    model = net()
    mirror, seen, graphs = copy.deepcopy(model), [], {}
    rr = classic(model, batches()[0], mode="full", fraction=fraction)
    torch._dynamo.reset()
    fast = compiled_as_by_inductor(rr, graphs) if grad else torch.compile(rr, backend="eager", fullgraph=True)
    for i, x in enumerate(batches()):
        with torch.no_grad():
            seen.append(back(mirror, x, False, round(8 * fraction))[0])
        with torch.set_grad_enabled(grad), torch._dynamo.config.patch(error_on_recompile=i > 0):
            loss = fast(x)[1]
        if grad:
            loss.backward()
    check(rr, recursion(model, seen), 4)
    training = dict(graphs)
    rr.eval()
    with torch.no_grad():
        close(fast(x)[1], rr(x)[1])
    check(rr, recursion(model, seen), 4)
    if grad:
        bare, others = classic(net(), x, mode="full", fraction=fraction), {}
        bare._engine.statistics = None
        compiled_as_by_inductor(bare, others)(x)[1].backward()
        assert summed(training) == summed(others)


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


def digits():
    """A convolutional net with batch norm, trained for some steps to tell digits apart with the reverse loss."""
    torch.manual_seed(0)
    x, y = load_digits(return_X_y=True)
    x, y = torch.tensor(x, dtype=torch.float32).view(-1, 1, 8, 8) / 16, torch.tensor(y)
    parts = []
    for inner, outer in ((1, 16), (16, 24)):
        parts += [nn.Conv2d(inner, outer, 3, padding=1), nn.BatchNorm2d(outer), nn.ReLU()]
    model = nn.Sequential(*parts, nn.Conv2d(24, 24, 3, padding=1), nn.Flatten(), nn.Linear(24 * 64, 10))
    rr = Racecar(model, x[:64], mode="full", weight={"0": 1, "3": 1, "6": 1}, input_activation="relu", fraction=0.5)
    step = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(60):
        some = torch.randint(1500, (64,))
        output, loss = rr(x[some])
        step.zero_grad()
        (F.cross_entropy(output, y[some]) + loss).backward()
        step.step()
    return rr, x[:1500], x[1500:]


def relative(x, rebuilt):
    return float((x - rebuilt).square().sum() / x.square().sum())


@pytest.fixture(scope="module")
def trained():
    return digits()


def errors(rr, x):
    """Of the input: by batch statistics of many, and in evaluation, one at a time."""
    with torch.no_grad():
        batch = relative(x, copy.deepcopy(rr).train().reconstruct(x)[0])
        single = [relative(one, rr.eval().reconstruct(one)[0]) for one in x[:32].split(1)]
    return batch, sum(single) / len(single)


def test_a_deployed_net_can_be_run_backwards(trained):
    rr, _, x = trained
    batch, single = errors(rr, x)
    bare = Racecar(rr.model, x[:2], mode="full", weight={"0": 1, "3": 1, "6": 1}, input_activation="relu")
    _, before = errors(bare, x)
    print(f"batch statistics {batch:.3f}, reverse ones {single:.3f}, the model's own {before:.3f}")
    assert single < 1.25 * batch
    assert before > 3 * single


def test_calibrated(trained):
    """For a model that never kept any: of every reverse pass its own, in the model nothing."""
    rr, data, x = trained
    model = rr.model
    before = copy.deepcopy(model.state_dict())
    found = calibrate(model, [(part, None) for part in data[:600].split(200)])
    close(model.state_dict(), before)
    many, one = invertibility(model, x, input_activation="relu"), x[:1]
    single = invertibility(model, one, statistics=found, input_activation="relu")
    bare = invertibility(model, one, statistics="running", input_activation="relu")
    for depth, by_batch, own in list(zip(single, many, bare, strict=True))[1:3]:
        assert depth.input < 1.6 * by_batch.input
        assert depth.input < own.input / 2
    leaks = leakage(model, one, statistics=found, input_activation="relu")
    assert leaks.leaks[2].adjusted > 0.5
    again = ReverseStatistics.restore(pickle.loads(pickle.dumps(found.export())))
    assert invertibility(model, one, statistics=again, input_activation="relu").to_dict() == single.to_dict()


def test_calibration_by_hand():
    """All batches count alike, and the forward pass has the model's own statistics."""
    model = net().eval()
    found = calibrate(model, batches()).export()
    with torch.no_grad():
        for mode, layerwise in (("full", False), ("layerwise", True)):
            seen = [back(model, x, layerwise, 8)[0] for x in batches()]
            for key in ("3:0", "5:0"):
                mean = torch.stack([one[key].mean(0) for one in seen]).mean(0)
                var = torch.stack([one[key].var(0) for one in seen]).mean(0)
                close((found[f"{mode} from 5/{key}.mean"], found[f"{mode} from 5/{key}.var"]), (mean, var))


def test_a_racecar_is_calibrated():
    model = net().eval()
    rr = classic(model, x := batches()[0], mode="full")
    calibrate(rr, batches())
    with torch.no_grad():
        seen = [back(model, one, False, 8)[0] for one in batches()]
        kept = {
            key: tuple(
                torch.stack([f(one[key]) for one in seen]).mean(0) for f in (lambda y: y.mean(0), lambda y: y.var(0))
            )
            for key in seen[0]
        }
        check(rr, kept, 4)
        close(rr.reconstruct(x[:1]), back(model, x[:1], False, 1, kept)[1])
    with pytest.raises(ValueError, match="no batches"):
        calibrate(rr, [])


def test_inspect_takes_a_racecar():
    rr = classic(net(), x := batches()[0], mode="full")
    with pytest.raises(ValueError, match="no reverse statistics"):
        invertibility(rr, x, statistics="reverse")
    assert invertibility(rr, x).to_dict() == invertibility(rr.model, x).to_dict()
    for one in batches():
        rr(one)
    rr.eval()
    found = invertibility(rr, x)
    close(found.rebuilt["d4"], rr.reconstruct(x)[0])
    assert leakage(rr, x).leaks[-1].explained == leakage(rr, found).leaks[-1].explained
    assert [one.layer for one in activations(rr, x)] == [one.layer for one in activations(rr.model, x)]
    close(singular_vectors(rr, "0").values, singular_vectors(rr.model, "0").values)


def test_saved_with_safetensors(tmp_path):
    from safetensors.torch import load_file, save_file

    rr = classic(net(), x := batches()[0])
    rr(x)
    save_file(rr.reverse_statistics.export(), tmp_path / "reverse.safetensors")
    other = classic(net(), x)
    other.reverse_statistics.load(load_file(tmp_path / "reverse.safetensors"))
    close(other.reverse_statistics.export(), rr.reverse_statistics.export())
    torch.save(rr.reverse_statistics.export(), io.BytesIO())
