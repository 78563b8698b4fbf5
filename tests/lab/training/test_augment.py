"""Augmentation: the random numbers that are drawn, and the source of each pixel."""

import pytest
import torch
from torch.nn import functional as F

from racecar_lab.training import augment
from racecar_lab.training.recipe import Recipe

STRONG = Recipe(shift=2, zoom=0.25)


def test_without_zoom_a_warp_is_a_move():
    x = torch.randn(6, 3, 7, 9, generator=torch.Generator().manual_seed(0))
    moves = augment.moves(2, (1, 6), 0, "A", 0)[0]
    drawn = torch.cat((moves.float(), torch.ones(6, 1)), 1)
    assert len(moves.unique(dim=0)) > 3
    torch.testing.assert_close(augment.warp(x, drawn, 2), augment.move(x, moves, 2), rtol=0, atol=1e-5)


def test_twice_as_large():
    """A zoom of 2 fills the picture with its centre; one of 0.5 puts all of it into the centre, with 0 around it."""
    x = torch.rand(1, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    still = [0.0, 2.0, 2.0]
    large, small = (augment.warp(x, torch.tensor([[*still, times]]), 2) for times in (2.0, 0.5))
    wanted = F.interpolate(F.pad(x[..., 1:-1, 1:-1], (0, 0)), scale_factor=2, mode="bilinear")[..., 2:-2, 2:-2]
    torch.testing.assert_close(large, wanted)
    torch.testing.assert_close(small[..., 2:6, 2:6], F.avg_pool2d(x, 2))
    assert small[..., :2, :].abs().max() == small[..., 6:].abs().max() == 0


def test_draws():
    drawn = augment.draw(STRONG, (3, 500), 0, "A", 0)
    assert torch.equal(drawn[..., :3].long(), augment.moves(2, (3, 500), 0, "A", 0))
    times = drawn[..., 3]
    assert 0.75 <= times.min() < 0.76 < 1.24 < times.max() <= 1.25
    assert torch.equal(drawn, augment.draw(STRONG, (3, 500), 0, "A", 0))
    for other in ((1, "A", 0), (0, "B", 0), (0, "A", 1)):
        assert not torch.equal(times, augment.draw(STRONG, (3, 500), *other)[..., 3])
    assert augment.draw(Recipe(), (3, 5), 0, "A", 0) is None
    assert augment.draw(Recipe(shift=2), (3, 5), 0, "A", 0).dtype == torch.int64
    assert augment.draw(Recipe(zoom=0.1), (3, 5), 0, "A", 0)[..., 1:3].unique().tolist() == [0]


def test_a_zoom_of_nothing_is_refused():
    with pytest.raises(ValueError, match=r"zoom must be in \[0, 1\), not 1.5"):
        Recipe(zoom=1.5)


def test_symmetries_of_a_square():
    """They are those that torch's flips and transposition make, and each picture has its own."""
    x = torch.arange(2 * 16.0).view(1, 2, 4, 4).expand(8, -1, -1, -1)
    ways = torch.tensor([[down, across, swapped] for down in (0, 1) for across in (0, 1) for swapped in (0, 1)])
    mapped = augment.symmetry(x, ways)
    for picture, image, (down, across, swapped) in zip(x, mapped, ways.tolist(), strict=True):
        wanted = picture.flip([d for d, on in ((1, down), (2, across)) if on])
        assert torch.equal(image, wanted.transpose(1, 2) if swapped else wanted)
    assert len(mapped.unique(dim=0)) == 8
    drawn = augment.draw(Recipe(symmetries=True), (3, 500), 0, "A", 0)
    assert len(drawn.flatten(0, 1).unique(dim=0)) == 8
    assert torch.equal(augment.apply(Recipe(symmetries=True), x, ways), mapped)
    with pytest.raises(ValueError, match="must be square, not 4 × 3"):
        augment.symmetry(x[..., :3], ways)
    with pytest.raises(ValueError, match="symmetries: pictures are turned, or else shifted"):
        Recipe(symmetries=True, shift=1)
