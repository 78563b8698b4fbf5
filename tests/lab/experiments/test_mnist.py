"""MNIST and its blurred copy, in small and in the publisher's files: what is trained, rebuilt, measured and claimed."""

import struct
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from racecar import Racecar
from racecar_lab.datasets import MNIST, motion
from racecar_lab.experiment import Trained, accuracy
from racecar_lab.experiments import experiment
from racecar_lab.experiments.mnist import LAYOUT, Mnist, likeness, run_back
from racecar_lab.report.claims import judge
from racecar_lab.report.groups import gather
from racecar_lab.report.verdicts import TOO_FEW
from racecar_lab.running.jobs import make_jobs
from racecar_lab.running.results import Store
from racecar_lab.running.search import best, trials
from racecar_lab.training.loss_config import FIRST_LOSS
from tests.lab.report.records import untrained
from tests.lab.tiny import results, run

ONE = experiment("mnist")
COUNTS = {"train": 480, "test": 100}
SHORT = ONE.Config(epochs=1, finetune=1, batch=64, share=0.2, cost=2.0)
METRICS = {"test_accuracy", "reverse_loss", "ssim", "ssim_scaled"}


@pytest.fixture(autouse=True)
def pictures(tmp_path, monkeypatch):
    """A bright stroke in a place of its own for each digit, with noise, for narrow nets; where they are."""
    rng = np.random.default_rng(0)
    raw = tmp_path / "data" / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for name, count in (("train", 480), ("t10k", 100)):
        labels = np.arange(count, dtype=np.uint8) % 10
        pixels = rng.integers(0, 40, (count, 28, 28), np.uint8)
        for picture, label in zip(pixels, labels, strict=True):
            picture[4 + 2 * label : 7 + 2 * label, 6:22] = 255
        (raw / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">4I", 0x803, count, 28, 28) + pixels.tobytes())
        (raw / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, count) + labels.tobytes())
    monkeypatch.setattr(Mnist, "source", replace(MNIST, counts=COUNTS))
    monkeypatch.setattr("racecar_lab.experiments.mnist.LAYOUT", (6, "M", 8, "M", 12, "M"))
    return tmp_path / "data"


def network(norm=False):
    torch.manual_seed(0)
    return ONE.network(ONE.Config(norm=norm)).eval()


# Data


def test_the_split_of_the_paper(pictures):
    """Eleven twelfths to train on, in every run; the rest is for a search alone. The transfer task blurs them all."""
    x, y = ONE.source.load(pictures, "train")
    x = x.float() / 255
    for config in (ONE.Config(), ONE.Config(valid=1 / 12)):
        tasks = ONE.data(config, 0, pictures)
        a, b = tasks["A"], tasks["B"]
        assert (len(a.train), len(a.test)) == (440, 100)
        assert torch.equal(a.train.x, x[40:])
        assert torch.equal(a.train.y, y[40:])
        assert torch.equal(b.train.x, motion.blur(a.train.x))
        assert torch.equal(b.test.x, motion.blur(a.test.x))
        assert torch.equal(b.test.y, a.test.y)
        assert 0 <= float(a.train.x.min()) < float(a.train.x.max()) == 1
        assert (a.valid is None) is (b.valid is None) is (config.valid == 0)
        if a.valid is not None:
            assert torch.equal(a.valid.x, x[:40])
            assert torch.equal(b.valid.x, motion.blur(x[:40]))
    assert round(ONE.search.valid * 60_000) == 5000
    assert round(60_000 - ONE.search.valid * 60_000) == 55_000


def test_a_share_of_the_pictures(pictures):
    task = ONE.data(ONE.Config(share=0.25), 0, pictures)["A"]
    assert (len(task.train), len(task.test)) == (110, 25)
    with pytest.raises(ValueError, match="of 1 pictures, 0 are held out: set a larger share"):
        ONE.data(ONE.Config(share=1e-9), 0, pictures)


# What is trained


def test_stages(pictures):
    """Std has B, too; what is trained longer is fine-tuned as ever, and has none."""
    jobs = make_jobs(ONE, ONE.Config(epochs=10, finetune=4, cost=1.61), ("Std", "RR"), [0], pictures)
    found = [(job.variant, {stage.name: stage.epochs for stage in job.stages}) for job in jobs]
    after = {"AA": 4, "AB": 4}
    assert found[0] == ("Std", {"A": None, **after, "B": None})
    assert sorted(found[1:], key=str) == [("RR", {"A": None, **after}), ("Std", {"A": 17, **after})]


def test_with_batch_norm(pictures, tmp_path):
    """Evaluated with the running statistics, too."""
    (job,) = make_jobs(ONE, replace(SHORT, norm=True, share=0.05), ["RR"], [0], pictures)
    assert run([replace(job, stages=job.stages[:1])], tmp_path / "out") == []
    (found,) = Store(tmp_path / "out").runs()
    assert set(found.metrics) == METRICS | {"reverse_loss_eval"}
    assert set(found.arrays) == {"d1", "rebuilt"}


def test_a_search_never_sees_the_test_set(pictures, tmp_path, monkeypatch):
    load = ONE.source.load

    def spoiled(folder, split):
        x, y = load(folder, split)
        return (x, y) if split == "train" else (x, torch.full_like(y, 99))  # no output has that number

    monkeypatch.setattr(type(ONE.source), "load", lambda self, folder, split: spoiled(folder, split))
    search = replace(ONE.search, lrs={"adam": (1e-3, 3e-3)}, seeds=1, weights={"RR": (0.1,)})
    jobs = trials(ONE, search, replace(SHORT, share=0.05, valid=search.valid), ["Std", "RR"], pictures)
    assert len(jobs) == 4
    assert run(jobs, tmp_path / "out") == []
    for one in Store(tmp_path / "out").runs():
        assert set(one.metrics) == METRICS - {"test_accuracy"} | {"valid_accuracy"}
    assert set(best(jobs, Store(tmp_path / "out"), search)) == {"Std", "RR"}


# What is measured


@torch.no_grad()
def test_the_reverse_pass_by_hand(pictures):
    """Without batch norm: every convolution transposed, the activation and twice the size in between."""
    model, x = network(), ONE.data(SHORT, 0, pictures)["A"].test.x
    convolutions = [module for module in model.features if isinstance(module, torch.nn.Conv2d)]
    d = [x]
    for i, layer in enumerate(convolutions):
        d.append(F.relu(layer(F.max_pool2d(d[-1], 2) if i else x)))
    back, terms = d[-1], []
    for layer, target in zip(convolutions[::-1], d[-2::-1], strict=True):
        back = F.relu(F.conv_transpose2d(back - layer.bias.view(-1, 1, 1), layer.weight, padding=1))
        if layer is not convolutions[0]:
            grown = F.interpolate(back, scale_factor=2)
            back = F.pad(grown, (0, target.shape[-1] - grown.shape[-1], 0, target.shape[-2] - grown.shape[-2]))
        terms.append(float((back - target).square().sum() / target.square().sum()))
    seen, loss = run_back(model, x, {**ONE.reverse(SHORT), "scale": "relative", "fraction": 1.0})
    torch.testing.assert_close(seen, back, rtol=1e-4, atol=1e-6)
    assert loss == pytest.approx(sum(terms) / 3, rel=1e-4)


def test_measuring_changes_nothing(pictures):
    """Batch norm takes the statistics of the batch, as in training, and keeps its own."""
    model, task = network(norm=True), ONE.data(SHORT, 0, pictures)["A"]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    trained = Trained(ONE.stages(SHORT)[0], model, task, 0, "RR", torch.device("cpu"))
    found = ONE.measure(replace(SHORT, scale="mean"), trained)  # relative, whatever the net was trained with
    assert not model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert found.metrics["test_accuracy"] == accuracy(model, task.test)
    relative = {**ONE.reverse(SHORT), "scale": "relative"}
    slice_loss = run_back(model, task.test.x, {**relative, "fraction": SHORT.fraction})[1]
    assert found.metrics["reverse_loss"] == run_back(model, task.test.x, relative)[1] != slice_loss
    shown, rebuilt = found.arrays["d1"], found.arrays["rebuilt"]
    assert torch.equal(shown, task.test.x[:10])  # the first of each digit
    rr = Racecar(model.train(), task.test.x, mode="full", **ONE.reverse(SHORT))
    torch.testing.assert_close(rebuilt, rr.reconstruct(task.test.x)[0][:10])
    assert (rebuilt >= 0).all()


def test_likeness():
    x = torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    same, bright, none = likeness(x, x), likeness(x, 5 * x), likeness(x, torch.zeros_like(x))
    assert same == pytest.approx({"ssim": 1, "ssim_scaled": 1})
    assert bright["ssim_scaled"] == pytest.approx(1)
    assert bright["ssim"] < 0.5
    assert 0 <= none["ssim"] == none["ssim_scaled"] < 0.1


# What is claimed


def test_claims_can_be_judged(pictures):
    jobs = make_jobs(ONE, SHORT, ["Std", "Ort", "RR", "WD"], range(3), pictures)
    findings = judge(ONE.claims, gather(untrained(jobs, METRICS)), lambda config, name: None)
    assert len(findings) == len({claim.text for claim in ONE.claims}) == 13
    assert all(found.pairs == 3 and found.verdict != TOO_FEW for found in findings)
    for found in findings:
        longer = "seconds" in found.claim.text
        assert found.sides[0].config["longer"] is False
        assert found.sides[1].config["longer"] is longer
        assert (found.claim.than == "Std") or not longer
        assert found.sides[1].stage == ("B" if "scratch" in found.claim.text else found.sides[0].stage)
    assert {(c.than, c.stage) for c in ONE.claims if c.metric == "ssim"} == {("Std", "A"), ("Ort", "A")}


def test_the_reverse_pass_is_learned(pictures, tmp_path, monkeypatch):
    """The point of it, in small: RR's picture is far nearer to the input than Std's."""
    monkeypatch.setattr("racecar_lab.experiments.mnist.LAYOUT", LAYOUT)
    config = replace(SHORT, **FIRST_LOSS, share=0.2, epochs=4, batch=16, lr=3e-3, cost=1.0, fraction=1.0, weight=0.1)
    found = {}
    for job in make_jobs(ONE, config, ["Std", "RR"], [0], pictures):
        assert run([replace(job, stages=job.stages[:1])], tmp_path / "out") == []
        found[job.variant] = Store(tmp_path / "out").get(job.ids["A"]).metrics
    assert found["RR"]["ssim"] > found["Std"]["ssim"] + 0.3
    assert found["RR"]["reverse_loss"] < 1 < found["Std"]["reverse_loss"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("norm", [False, True])
def test_on_the_device(norm, pictures, tmp_path):
    """The same but for rounding."""
    config = replace(SHORT, lr=1e-4, norm=norm, share=1.0)
    jobs = make_jobs(ONE, config, ["RR"], [0], pictures)
    for device in ("cpu", "cuda"):
        assert run(jobs, tmp_path / device, device=device) == []
    cpu, cuda = (results(tmp_path / device) for device in ("cpu", "cuda"))
    for id, found in cpu.items():
        assert cuda[id]["curves"]["train_loss"] == pytest.approx(found["curves"]["train_loss"], rel=0.02)
        assert cuda[id]["metrics"]["ssim"] == pytest.approx(found["metrics"]["ssim"], abs=0.02)
