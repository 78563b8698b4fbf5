"""Smoke autoencoders: the mirror image of a generator, what is filled, real data, learning curves."""

import pytest
import torch

from racecar import Racecar
from racecar_lab.experiments.smoke_autoencoder import splitting as real_splitting
from racecar_lab.experiments.smoke_autoencoder.figures import steps_to
from racecar_lab.experiments.smoke_autoencoder.stages import CHANNELS, autoencoder
from racecar_lab.measures.dead import is_dead
from racecar_lab.networks.smoke import encoder, fill_decoder, fill_encoder, generator, weighted
from racecar_lab.running.results import Store
from tests.lab.experiments.smoke_cases import AUTOENCODER, TINY_AUTOENCODER, autoencoder_jobs, small_data
from tests.lab.tiny import run

WIDTHS = (4, 6, 6, 4, 3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    with small_data(tmp_path_factory.mktemp("data")) as found:
        yield found


@pytest.fixture(scope="module")
def whole(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("whole")
    assert run(autoencoder_jobs(folder), out) == []
    return out


# The mirror image


@pytest.fixture
def source():
    torch.manual_seed(0)
    return generator(WIDTHS)


def low(n=3):
    return torch.rand(n, 1, 16, 16, generator=torch.Generator().manual_seed(1))


def test_a_filled_encoder_is_the_reverse_pass(source):
    """That of Racecar itself, from the generator's output to its input."""
    front = encoder(WIDTHS)
    fill_encoder(front, source)
    wanted = Racecar(source, low(), mode="full").reconstruct(low())[0]
    torch.testing.assert_close(front(source(low())), wanted)


def test_in_colour_a_grey_picture_is_what_it_is_in_grey(source):
    """Up to rounding: a convolution sums three channels in another order than one."""
    front, back = encoder(WIDTHS, 3), generator(WIDTHS, 3)
    fill_encoder(front, source)
    fill_decoder(back, source)
    grey = encoder(WIDTHS)
    fill_encoder(grey, source)
    x = torch.rand(2, 1, 64, 64, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(front(x.expand(-1, 3, -1, -1)), grey(x))
    torch.testing.assert_close(back(low()), source(low()).expand(-1, 3, -1, -1))
    last, own = weighted(back)[-1].weight, weighted(source)[-1].weight
    assert torch.equal(last, own.expand(3, -1, -1, -1))


@pytest.mark.parametrize("task", CHANNELS)
def test_what_is_filled(task, source):
    """The decoder, both halves, or nothing; what is not filled is the same in either fill."""
    stages = {stage.name: stage for stage in AUTOENCODER.stages(AUTOENCODER.Config()) if stage.task == task}
    assert set(stages) == {task, f"A{task}-decoder", f"A{task}-both"}
    nets = {}
    for name, stage in stages.items():
        torch.manual_seed(3)
        nets[name] = autoencoder(stage, WIDTHS, source if stage.after else None)["autoencoder"]
        x = torch.rand(2, CHANNELS[task], 64, 64)
        assert nets[name](x).shape == x.shape
    scratch, half, both = (nets[name] for name in (task, f"A{task}-decoder", f"A{task}-both"))
    taken = [one.weight for one in weighted(source)]
    for filled in (half, both):
        inner = [one.weight for one in weighted(filled[1])]
        assert all(torch.equal(a, b) for a, b in zip(inner[:-1], taken[:-1], strict=True))
    for a, b, c in zip(*(weighted(net[0]) for net in (scratch, half, both)), strict=True):
        assert torch.equal(a.weight, b.weight)
        assert not torch.equal(b.weight, c.weight)
    assert not any(torch.equal(a.weight, b) for a, b in zip(weighted(scratch[1]), taken, strict=False))
    assert {stage.variants for name, stage in stages.items() if name == task} == {("Std",)}


# Real smoke


def test_the_plume_is_split_by_view_and_time(folder):
    (plume, view, frame), _ = real_splitting.load_pictures(folder)
    where = {x.flatten().numpy().tobytes(): (int(v), int(f)) for x, v, f in zip(plume, view, frame, strict=True)}
    for valid in (0.0, 0.25):
        task = AUTOENCODER.data(AUTOENCODER.Config(valid=valid), 0, folder)["B2"]
        trained = [where[x.flatten().numpy().tobytes()] for x in task.train.x]
        tested = [where[x.flatten().numpy().tobytes()] for x in task.test.x]
        assert {v for v, _ in trained} == {0, 1, 2}
        assert {v for v, _ in tested} == ({3} if valid else {4})
        assert max(f for _, f in trained) < min(f for _, f in tested)


def test_photographs_are_split_by_their_place(folder):
    _, (photographs, _) = real_splitting.load_pictures(folder)
    place = {x.flatten().numpy().tobytes(): i for i, x in enumerate(photographs)}
    ends = []
    for valid in (0.25, 0.0):
        task = AUTOENCODER.data(AUTOENCODER.Config(valid=valid, pictures=10), 0, folder)["B3"]
        assert len(task.train) == 10
        ends.append([place[x.flatten().numpy().tobytes()] for x in task.test.x])
        assert max(place[x.flatten().numpy().tobytes()] for x in task.train.x) < min(ends[-1])
    assert max(ends[0]) < min(ends[1])


# Runs


class Half(torch.nn.Module):
    """A constant picture, and a share of the input."""

    def __init__(self, share):
        super().__init__()
        self.share = share

    def forward(self, x):
        return 0.4 + self.share * x


@pytest.mark.parametrize("share, dead", [(0.0, True), (0.05, True), (0.3, False), (1.0, False)])
def test_an_autoencoder_that_nearly_always_says_the_same_is_dead(share, dead):
    """It is measured by what it should rebuild, and not by how bright that is."""
    for x in (torch.rand(16, 1, 8, 8), 0.001 * torch.rand(16, 1, 8, 8)):
        assert is_dead(Half(share), x, autoencoder=True) is dead


def test_every_stage_is_there(whole):
    found = {(one.variant, one.stage) for one in Store(whole).runs()}
    fills = {f"AB{i}-{fill}" for i in (1, 2, 3) for fill in ("decoder", "both")}
    assert {stage for variant, stage in found if variant == "RR"} == {"A", *fills}
    assert {stage for variant, stage in found if variant == "Std"} == {"A", "B1", "B2", "B3", *fills}


def test_a_search_goes_on_with_what_smokes_chose():
    """For each variant it tries learning rates of the autoencoder alone."""
    given = {"lr": 0.5, "weight": 2.0}
    tried = AUTOENCODER.search.candidates("RR", "adam", given)
    assert [{**one, "autoencoder_lr": None} for one in tried] == [{**given, "autoencoder_lr": None}] * len(tried)
    assert len({one["autoencoder_lr"] for one in tried}) == len(tried) > 2


def test_curves_end_at_what_is_measured(whole):
    """All held-out pictures are looked at here, where they are few: the last look is the error itself."""
    for one in Store(whole).runs():
        if one.stage != "A":
            curve = one.arrays["curve"]
            assert len(curve) == TINY_AUTOENCODER["looks"] + 1
            assert float(curve[-1]) == pytest.approx(one.metrics["test_l2"], rel=1e-4)


def test_steps_to_an_error():
    steps, errors = [0.0, 10.0, 20.0], [3.0, 2.0, 1.0]
    assert [steps_to(goal, steps, errors) for goal in (5, 2, 1.5, 0.5)] == ["0", "10", "20", "never"]
