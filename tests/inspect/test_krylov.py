"""The block Krylov search compared with numpy.linalg.svd, for matrices with chosen singular values."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from racecar.inspect.krylov import top_singular


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def with_values(values, rows, columns, seed=0):
    """A rows × columns matrix with these singular values, then zeros."""
    count = min(rows, columns)
    values = torch.tensor([*values, *[0.0] * count][:count], dtype=torch.float64)
    left, right = (torch.linalg.qr(random(size, count, seed=seed + i)).Q for i, size in enumerate((rows, columns)))
    return left * values @ right.mT


def search(matrix, k, spare=8, seed=5, **options):
    start = random(min(k + spare, matrix.shape[1]), matrix.shape[1], seed=seed)
    return top_singular(lambda x: x @ matrix.mT, lambda y: y @ matrix, start, k, **options)


def check(matrix, k, tolerance=1e-7, **options):
    """Assert NumPy's singular values, and orthonormal vectors in the span of NumPy's."""
    found, vectors = search(matrix, k, **options)
    _, truth, right = np.linalg.svd(matrix.numpy())
    truth = np.concatenate([truth, np.zeros(len(right) - len(truth))])
    top = truth[0] or 1.0
    assert (found.shape, vectors.shape) == ((k,), (k, matrix.shape[1]))
    assert (found.diff() <= 0).all()
    np.testing.assert_allclose(found / top, truth[:k] / top, rtol=0, atol=tolerance)
    np.testing.assert_allclose(vectors @ vectors.mT, np.eye(k), atol=1e-10)
    for value, vector in zip(found / top, vectors.numpy(), strict=True):
        near = right[abs(truth / top - value.item()) < 1e-3]  # its group, and whatever is close to it
        assert np.square(near @ vector).sum() == pytest.approx(1, abs=1e-5)


@st.composite
def problems(draw):
    rows, columns = draw(st.integers(1, 60)), draw(st.integers(1, 60))
    levels = draw(st.lists(st.sampled_from([0.0, 0.1, 0.5, 0.99, 1.0, 3.0]), min_size=1, max_size=4))
    repeats = draw(st.lists(st.integers(1, 30), min_size=len(levels), max_size=len(levels)))
    values = sorted((level for level, times in zip(levels, repeats, strict=True) for _ in range(times)), reverse=True)
    k = draw(st.integers(1, columns))
    return with_values(values, rows, columns, draw(st.integers(0, 99))), k, draw(st.integers(1, 12))


@given(problems())
def test_equal_singular_values_in_groups(problem):
    matrix, k, spare = problem
    check(matrix, k, spare=spare)


@given(st.integers(1, 80), st.integers(1, 80), st.integers(1, 80), st.integers(0, 99))
def test_random_matrices(rows, columns, k, seed):
    check(random(rows, columns, seed=seed), min(k, columns))


HARD = {
    "identity": (torch.eye(200, dtype=torch.float64), 5),
    "orthogonal": (with_values([1.0] * 150, 150, 150), 10),
    "a few pixels": (torch.eye(200, dtype=torch.float64)[::16], 5),
    "fewer than k pixels": (torch.eye(200, dtype=torch.float64)[:3], 7),
    "rank 4": (with_values([4.0, 3.0, 2.0, 1.0], 150, 150), 10),
    "rank 1": (with_values([1.0], 100, 200), 3),
    "zero": (torch.zeros(50, 200, dtype=torch.float64), 4),
    "one row": (random(1, 120), 3),
    "one column": (random(120, 1), 1),
    "more rows than columns": (random(300, 40), 4),
    "more columns than rows": (random(40, 300), 4),
    "k is n": (random(50, 50), 50),
    "k is nearly n": (random(50, 50), 49),
    "two levels": (with_values([1.0] * 30 + [0.999] * 30 + [0.5] * 60, 120, 120), 40),
    "close together": (with_values([1 - 1e-6 * i for i in range(150)], 150, 150), 10),
    "falling fast": (with_values([0.8**i for i in range(120)], 120, 120), 20),
    "very small": (1e-30 * random(60, 120), 5),
    "very large": (1e30 * random(60, 120), 5),
}


@pytest.mark.parametrize("name", HARD)
def test_hard_matrices(name):
    matrix, k = HARD[name]
    check(matrix, k)


def test_an_invariant_block_needs_no_search():
    """Of a multiple of the identity every block is a set of singular vectors."""
    calls = []

    def apply(x):
        calls.append(len(x))
        return 3 * x

    values, _ = top_singular(apply, lambda y: 3 * y, random(12, 400), 4)
    np.testing.assert_allclose(values, [3] * 4, atol=1e-12)
    assert len(calls) <= 8


@pytest.mark.parametrize("top", [10, 1000])
def test_small_values_beside_a_large_one(top):
    """One value far above all others, as for a kernel whose entries have a mean; the small ones are found, too."""
    values = [float(top), *torch.linspace(1, 0.2, 150).tolist()]
    matrix = with_values(values, 200, 200)
    found, vectors = search(matrix, 5)
    right = np.linalg.svd(matrix.numpy())[2]
    np.testing.assert_allclose(found, values[:5], rtol=1e-6)
    np.testing.assert_allclose(abs((vectors.numpy() * right[:5]).sum(1)), 1, atol=1e-5)


def test_says_so_where_it_does_not_converge():
    matrix = random(200, 200)
    with pytest.warns(UserWarning, match=r"residual of \d\.\de-\d+ only, after 1 rounds"):
        values, vectors = search(matrix, 10, rounds=1)
    np.testing.assert_allclose(vectors @ vectors.mT, np.eye(10), atol=1e-10)
    assert (values <= torch.linalg.svdvals(matrix)[:10] * (1 + 1e-12)).all()  # from below


def test_a_finer_tolerance_is_kept():
    matrix = random(150, 150)
    for tolerance in (1e-3, 1e-9):
        values, vectors = search(matrix, 6, tolerance=tolerance)
        residual = (vectors @ matrix.mT @ matrix - values.square()[:, None] * vectors).norm(dim=1) / values[0] ** 2
        assert residual.max() <= tolerance * 1.01
