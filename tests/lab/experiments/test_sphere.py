"""The mutual-information task made from its rule; every count and number found another way."""

import math

import numpy as np
import pytest
from scipy.spatial.transform import Rotation
from scipy.special import sph_harm_y

from racecar_lab.datasets import sphere

POINTS = sphere.corners().numpy()
PATTERNS = np.array([[number >> bit & 1 for bit in range(12)] for number in range(4096)])


def axes():
    """(directions, by what part of a turn they may be turned): corners, middles of the faces, middles of the edges."""
    edge = np.linalg.norm(POINTS[0] - POINTS, axis=1)
    edge = edge[edge > 1e-9].min()
    near = np.abs(np.linalg.norm(POINTS[:, None] - POINTS[None], axis=2) - edge) < 1e-6
    edges = [POINTS[i] + POINTS[j] for i in range(12) for j in range(i) if near[i, j]]
    faces = [
        POINTS[i] + POINTS[j] + POINTS[k]
        for i in range(12)
        for j in range(i)
        for k in range(j)
        if near[i, j] and near[j, k] and near[i, k]
    ]
    assert (len(edges), len(faces)) == (30, 20)
    return (list(POINTS), 5), (faces, 3), (edges, 2)


def permutation(matrix):
    """Where a turn or a reflection takes each corner."""
    distance = np.linalg.norm((POINTS @ matrix.T)[:, None] - POINTS[None], axis=2)
    assert np.allclose(distance.min(1), 0, atol=1e-9)
    return tuple(distance.argmin(1).tolist())


def rotations():
    """All that take the icosahedron to itself, built as turns about its axes."""
    found = {permutation(np.eye(3))}
    for directions, parts in axes():
        for direction in directions:
            for k in range(1, parts):
                turn = Rotation.from_rotvec(direction / np.linalg.norm(direction) * math.tau * k / parts)
                found.add(permutation(turn.as_matrix()))
    return found


ROTATIONS = rotations()
REFLECTION = permutation(-np.eye(3))  # the point reflection: with the rotations it makes the whole group
WHOLE = ROTATIONS | {tuple(REFLECTION[i] for i in turn) for turn in ROTATIONS}


def burnside(group):
    """Orbits of black-and-white patterns: the mean of 2 to the number of a permutation's cycles."""

    def cycles(permutation):
        seen, count = set(), 0
        for start in range(12):
            count += start not in seen
            while start not in seen:
                seen.add(start)
                start = permutation[start]
        return count

    total = sum(2 ** cycles(one) for one in group)
    assert total % len(group) == 0
    return total // len(group)


def test_corners_of_an_icosahedron():
    assert POINTS.shape == (12, 3)
    assert np.allclose(np.linalg.norm(POINTS, axis=1), 1)
    cosines = np.sort((POINTS @ POINTS.T).round(9), axis=1)
    beside = 1 / math.sqrt(5)  # every corner has its opposite, five beside it and five beside that
    assert np.allclose(cosines, [-1, *[-beside] * 5, *[beside] * 5, 1])


def test_every_pattern_once():
    x = sphere.patterns().numpy()
    assert x.shape == (4096, 12)
    assert {tuple(row) for row in x.tolist()} == {tuple(row) for row in PATTERNS.tolist()}


@pytest.mark.parametrize("group, size, orbits", [(ROTATIONS, 60, 96), (WHOLE, 120, 82)])
def test_orbits(group, size, orbits):
    """The numbers in the docstring, by Burnside's lemma."""
    assert len(group) == size
    assert burnside(group) == orbits


def test_power_spectrum_is_that_of_spherical_harmonics():
    """Σ_m |Σ_i x_i Y_lm(p_i)|², summed as it is written."""
    polar, around = np.arccos(POINTS[:, 2]), np.arctan2(POINTS[:, 1], POINTS[:, 0])
    x = sphere.patterns().numpy().astype(float)
    found = sphere.power_spectrum(sphere.patterns(), 7).numpy()
    for degree in range(7):
        harmonics = np.array([sph_harm_y(degree, m, polar, around) for m in range(-degree, degree + 1)])
        assert np.allclose(found[:, degree], (np.abs(x @ harmonics.T) ** 2).sum(1), atol=1e-9)
    assert np.allclose(sphere.rule(sphere.patterns()).numpy(), found[:, :3].sum(1))


def test_classes():
    """The spectrum tells 64 classes apart, in the degrees that the rule uses and in many more, up to rounding."""
    for degrees in (sphere.DEGREES, 12):
        spectrum = sphere.power_spectrum(sphere.patterns(), degrees).numpy()
        assert len(np.unique(spectrum.round(6), axis=0)) == 64
        assert len(np.unique(spectrum.round(8), axis=0)) == 64
    levels = np.sort(np.unique(sphere.rule(sphere.patterns()).numpy().round(6)))
    assert len(levels) == 64
    assert np.diff(levels).min() > 1e-3  # so no class is split or joined by rounding


def test_probabilities_do_not_change_when_the_sphere_is_turned():
    powers = 1 << np.arange(12)
    p = np.full(4096, np.nan)
    p[sphere.patterns().numpy() @ powers] = sphere.probabilities().numpy()
    for one in WHOLE:
        assert np.allclose(p[PATTERNS[:, list(one)] @ powers], p, rtol=0, atol=1e-9)


def test_half_the_labels_and_a_bit_of_information():
    p = sphere.probabilities().numpy()
    assert p.shape == (4096,)
    assert ((p >= 0) & (p <= 1)).all()
    assert abs(p.mean() - 0.5) < 0.02
    # I(X;Y) from the joint distribution: Σ p(x,y) log p(x,y) / p(x) p(y)
    joint = np.stack([1 - p, p]) / 4096
    independent = joint.sum(0, keepdims=True) * joint.sum(1, keepdims=True)
    inside = joint > 0
    bits = (joint[inside] * np.log2(joint[inside] / independent[inside])).sum()
    assert abs(bits - 0.99) < 1e-6
    assert abs(sphere.information(sphere.probabilities()) - bits) < 1e-9


def test_the_threshold_is_a_sigmoid_of_the_rule():
    """logit p = γ (f − θ): a straight line over f, rising, with θ between two classes."""
    f, p = sphere.rule(sphere.patterns()).numpy(), sphere.probabilities().numpy()
    soft = (p > 1e-9) & (p < 1 - 1e-9)
    logit = np.log(p[soft] / (1 - p[soft]))
    slope, start = np.polyfit(f[soft], logit, 1)
    assert slope > 0
    assert np.allclose(logit, slope * f[soft] + start, atol=1e-4)
    theta = -start / slope
    below, above = f[f < theta].max(), f[f > theta].min()
    assert theta == pytest.approx((below + above) / 2, abs=1e-6)
    shares = [abs((f > level + 1e-6).mean() - 0.5) for level in np.unique(f.round(6))]
    assert abs((f > theta).mean() - 0.5) == min(shares)


def test_labels():
    x, y = sphere.load()
    assert x.shape == (4096, 12)
    assert str(x.dtype) == "torch.float32"
    assert str(y.dtype) == "torch.int64"
    assert set(x.unique().tolist()) == {0.0, 1.0}
    assert set(y.unique().tolist()) == {0, 1}
    again, other = sphere.load()[1], sphere.load(1)[1]
    assert y.equal(again)
    assert not y.equal(other)
    sure = (sphere.probabilities() - 0.5).abs() > 0.499999
    assert y[sure].equal(other[sure])  # a new draw changes only what is left to chance
    truth = sphere.probabilities()[sure].round().long()
    assert y[sure].equal(truth)
    assert abs(float(y.float().mean()) - 0.5) < 0.03


def test_labels_follow_their_probabilities():
    """Mean over many draws; six standard errors."""
    draws = np.stack([sphere.load(seed)[1].numpy() for seed in range(200)])
    p = sphere.probabilities().numpy()
    assert (np.abs(draws.mean(0) - p) <= 6 * np.sqrt(p * (1 - p) / 200) + 1e-6).all()
