"""The short form of every experiment: a minute on two cores, reckoned from what its trainings multiply."""

from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from racecar_lab.datasets import Source
from racecar_lab.datasets.smoke import FRAMES
from racecar_lab.experiments import EXPERIMENTS, mnist, safety
from racecar_lab.experiments.disentangle import codes
from racecar_lab.experiments.disentangle.splitting import digits_task
from racecar_lab.experiments.smoke import splitting as smoke_splitting
from racecar_lab.experiments.smoke_autoencoder import splitting as real_splitting
from racecar_lab.experiments.texture_shape import splitting
from racecar_lab.networks.smoke import lowered
from racecar_lab.running.jobs import make_jobs, with_earlier
from racecar_lab.training.rng import steps_per_epoch

RATE = 1e10
"""Operations in a second on one slow core, as measured."""
STEP = 1e-3
"""Seconds that a step takes besides."""
SIZES = {"cifar10": (3, 32, 32), "texture-shape": (3, 64, 64), "smoke": (1, 64, 64), "smoke-real": (3, 64, 64)}
CACHED = (
    safety._tasks, mnist.pictures, splitting.pictures, smoke_splitting.load_frames, real_splitting.load_pictures,
    digits_task,
)  # fmt: skip
BESIDE = {"smoke": 2, "smoke-autoencoder": 2, "disentangle": 4}
"""Where another network is trained beside the one that is counted, or with it: how many times the work."""


@pytest.fixture(autouse=True)
def data_of_full_size(monkeypatch):
    """As many pictures as there really are, all black, in no memory."""

    def columns(self, folder, split):
        """Real smoke has frames beside the labels; texture-shape has textures and the numbers of its shape pictures."""
        count = self.counts[split]
        i = torch.arange(count)
        black = torch.zeros(1, *SIZES.get(self.name, (1, 28, 28)), dtype=torch.uint8).expand(count, -1, -1, -1)
        if self.name.startswith("smoke"):
            return black, i // FRAMES, i % FRAMES
        if self.name == "texture-shape":
            return black, i % 16, i % 15, i // 16 % 10 + 1
        return black, i % 10

    monkeypatch.setattr(Source, "columns", columns)
    for cached in CACHED:
        cached.cache_clear()


def seconds(job):
    """Of one core, for all stages of a job: three passes of a plain step, twice as many with a reverse pass."""
    config, tasks = job.config, job.experiment.data(job.config, job.seed, None)
    with torch.device("meta"):
        network = job.experiment.network(config)
    x = tasks[job.stages[0].task].train.x[:1].to("meta")
    if job.experiment.name in BESIDE:
        x = codes.mean_inputs(1, config.code).to("meta") if job.experiment.name == "disentangle" else lowered(x)
    with FlopCounterMode(display=False) as counter:
        network.eval()(x)
    passes = (6 if job.experiment.variant(job.variant).kind == "reverse" else 3) * BESIDE.get(job.experiment.name, 1)
    total = 0.0
    for stage in job.stages:
        samples, epochs = len(tasks[stage.task].train), stage.epochs or config.epochs
        work = passes * counter.get_total_flops() * samples * epochs / RATE
        total += work + STEP * steps_per_epoch(samples, config.batch) * epochs
    return total


@pytest.mark.parametrize("name", [name for name, one in EXPERIMENTS.items() if not one.engine])
def test_a_minute_on_two_cores(name):
    one = EXPERIMENTS[name]
    jobs = with_earlier(make_jobs(one, one.Config(**one.quick.settings), one.variants, range(one.quick.seeds), None))
    keys = {job: (job.experiment.name, job.variant, str(job.config)) for job in jobs}
    taken = {}
    for job, key in keys.items():
        taken[key] = taken.get(key) or seconds(job)
    assert sum(taken[key] for key in keys.values()) / 2 < 45


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_data_that_it_needs(name, quick, monkeypatch):
    """What it opens is what it says."""
    one, opened, columns = EXPERIMENTS[name], set(), Source.columns

    def spy(self, folder, split):
        opened.add(self.name)
        return columns(self, folder, split)

    monkeypatch.setattr(Source, "columns", spy)
    (config, *_) = one.configs(one.Config(**one.quick.settings), None)
    config = replace(
        config, **({} if quick else {name: getattr(one.Config, name) for name in ("shipped",) if hasattr(config, name)})
    )
    for cached in CACHED:
        cached.cache_clear()
    one.data(config, 0, None)
    assert opened == {source.name for source in one.sources(config)}
