"""Smoke: how it is split, what it trains, what its records name, and its film."""

import pytest
import torch
from torch.nn import functional as F

from racecar_lab.datasets import smoke
from racecar_lab.experiment import Stage
from racecar_lab.experiments.smoke import film, losses
from racecar_lab.experiments.smoke.config import TRAINING_PLUMES
from racecar_lab.networks.smoke import lowered
from racecar_lab.running.results import Store
from racecar_lab.training.recipe import Batch
from tests.lab.experiments.smoke_cases import SMOKE, TINY, jobs, small_data
from tests.lab.tiny import results, run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    with small_data(tmp_path_factory.mktemp("data")) as found:
        yield found


@pytest.fixture(scope="module")
def whole(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("whole")
    assert run(jobs(folder), out) == []
    return out


# The split


@pytest.mark.parametrize("seed", range(3))
def test_no_plume_is_trained_and_tested_on(folder, seed):
    config = SMOKE.Config(tests=5, share=0.1)
    task = SMOKE.data(config, seed, folder)["A"]
    assert set(task.test.y.tolist()) == set(range(TRAINING_PLUMES, 20))
    assert max(task.train.y.tolist()) < TRAINING_PLUMES
    assert len(task.train) == 24  # a tenth of 20 × 12
    assert len(task.test) == 4 * 5
    frames, plumes = smoke.SMOKE.load(folder, "all")
    own = {(int(y), x.sum().item()) for x, y in zip(frames.float() / 255, plumes, strict=True)}
    assert all((int(y), x.sum().item()) in own for x, y in zip(task.train.x, task.train.y, strict=True))


def test_a_search_never_sees_a_test_plume(folder):
    held = set()
    for seed in (1000, 1001, 1002):
        task = SMOKE.data(SMOKE.Config(valid=0.25), seed, folder)["A"]
        trained, valid = set(task.train.y.tolist()), set(task.valid.y.tolist())
        assert not trained & valid
        assert len(valid) == 4
        assert trained | valid <= set(range(TRAINING_PLUMES))
        assert task.test is task.valid
        held.add(frozenset(valid))
    assert len(held) > 1


def test_too_few_frames_are_refused(folder):
    for config in (SMOKE.Config(share=1e-3), SMOKE.Config(share=1.0)):
        with pytest.raises(ValueError, match="set another share"):
            SMOKE.data(config, 0, folder)


# The losses


def networks():
    torch.manual_seed(0)
    return SMOKE.networks(SMOKE.Config(**TINY), Stage("A"), None)


def test_losses_by_hand():
    """Non-saturating, with features of the discriminator and pixels; the discriminator's leaves the generator alone."""
    nets, x = networks(), torch.rand(3, 1, 64, 64, generator=torch.Generator().manual_seed(0))
    config = SMOKE.Config(**TINY, pixel=2.0, feature=3.0, adversarial=5.0)
    g, d, low = nets["generator"], nets["discriminator"], F.avg_pool2d(x, 4)
    fake = g(low)
    score = -torch.log(torch.sigmoid(d(fake, low))).mean()
    pairs = list(zip(d.features(fake, low), d.features(x, low), strict=True))
    alike = sum((a - b).square().mean() for a, b in pairs) / len(pairs)
    batch = Batch(x, torch.zeros(3))
    found = losses.GeneratorLoss(config)(g, batch, nets)
    torch.testing.assert_close(found, 2 * (fake - x).square().mean() + 3 * alike + 5 * score)
    told = losses.discriminator_loss(d, batch, nets)
    wanted = -torch.log(torch.sigmoid(d(x, low))).mean() - torch.log(1 - torch.sigmoid(d(fake, low))).mean()
    torch.testing.assert_close(told, wanted)
    told.backward()
    assert all(p.grad is None for p in g.parameters())
    assert all(p.grad is not None for p in d.parameters())


def test_pixels_alone_need_no_discriminator():
    config, nets = SMOKE.Config(**TINY, feature=0.0, adversarial=0.0), networks()
    x = torch.rand(2, 1, 64, 64)
    found = losses.GeneratorLoss(config)(nets["generator"], Batch(x, x), {"discriminator": None})
    torch.testing.assert_close(found, 100 * F.mse_loss(nets["generator"](lowered(x)), x))


def test_the_generator_alone_is_regularised(whole):
    (rr,) = [one for one in results(whole).values() if one["variant"] == "RR"]
    assert rr["curves"]["generator_regulariser"][-1] > 0
    assert set(rr["curves"]["discriminator_regulariser"]) == {0.0}


# Runs


def test_records_name_their_data(folder, whole, tmp_path):
    """And other data make other names."""
    assert {run.tables["data"] for run in Store(whole).runs()} == {smoke.checksum(folder)}
    (job,) = jobs(folder, ("Std",))
    (tmp_path / smoke.NAME).write_bytes((folder / smoke.NAME).read_bytes() + b"0")
    (other,) = jobs(tmp_path, ("Std",))
    assert job.ids != other.ids


def test_a_generator_that_died_is_noted(folder, tmp_path, monkeypatch):
    """An outcome of its own, as for other nets."""
    network = type(SMOKE).network

    def dead(self, config, dropout=0.0):
        made = network(self, config)
        torch.nn.init.constant_(made[2].bias, -1e3)
        return made

    monkeypatch.setattr(type(SMOKE), "network", dead)
    assert run(jobs(folder, ("Std",), lr=1e-6), tmp_path) == []
    (found,) = Store(tmp_path).runs()
    assert found.dead
    assert found.finished


# The film


@pytest.mark.parametrize("suffix", ["gif", "png"])
def test_the_film_shows_every_frame_that_is_asked_for(suffix, folder, whole, tmp_path):
    from PIL import Image

    out = tmp_path / f"film.{suffix}"
    size = film.film(whole, out, ("Std", "RR"), data=folder, every=4)
    assert size == out.stat().st_size < film.MAX_BYTES
    with Image.open(out) as picture:
        assert picture.n_frames == 3
        assert picture.size == (3 * (film.SIDE + film.GAP) + film.GAP, 2 * (film.HEAD + film.SIDE + film.GAP))


def test_the_film_is_what_was_measured(folder, whole):
    """Rebuilt inputs are those of the record."""
    store = Store(whole)
    (rr,) = [run for run in store.runs() if run.variant == "RR"]
    task = SMOKE.data(SMOKE.Config(**TINY), 0, folder)["A"]
    low, high, back = film.pictures(rr, store, task.test.x)
    for name, seen in (("low", low), ("high", high), ("rebuilt", back)):
        kept = rr.arrays[name]
        assert all(any((one.int() - frame.int()).abs().max() <= 1 for frame in seen) for one in kept)


def test_films_that_cannot_be(folder, whole, tmp_path):
    def refused(**changes):
        given = {"folder": whole, "out": tmp_path / "a.gif", "variants": ["RR"], "data": folder, **changes}
        with pytest.raises(ValueError, match=".") as caught:
            film.film(given.pop("folder"), given.pop("out"), given.pop("variants"), **given)
        return str(caught.value)

    assert "a film is a .gif" in refused(out=tmp_path / "a.mp4")
    assert "has no lRR, but" in refused(variants=["lRR"])
    assert "have: 0; choose one by --seed" in refused(seed=7)
    assert "the plumes are 0 to 19" in refused(plume=20)
    assert "has no finished GAN of smoke" in refused(folder=tmp_path)
    assert "--every must be at least 1" in refused(every=0)
    other = tmp_path / "other"
    other.mkdir()
    (other / smoke.NAME).write_bytes((folder / smoke.NAME).read_bytes() + b"0")
    assert "use its data" in refused(data=other)
    assert not (tmp_path / "a.gif").exists()
