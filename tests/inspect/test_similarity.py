"""Similarity of vectors and data: subspaces with known angles, and every measure computed again pair by pair."""

import json
import math
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from racecar.inspect.similarity import principal_angles, similarity
from racecar.inspect.ssim import ssim


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def orthonormal(rows, n, seed=0):
    return torch.linalg.qr(random(n, rows, seed=seed))[0].T


class PixelDistance:
    """Stands for LPIPS: the mean absolute difference, which one can work out by hand."""

    def pairwise(self, a, b):
        assert a.min() >= -1
        assert a.max() <= 1
        return (a[:, None] - b[None]).abs().mean((2, 3, 4))


# Principal angles


@given(st.integers(1, 6), st.integers(1, 6), st.integers(6, 12), st.integers(0, 99))
def test_angles_equal_scipy(p, q, n, seed):
    scipy = pytest.importorskip("scipy.linalg")
    a, b = random(p, n, seed=seed), random(q, n, seed=seed + 1)
    found = principal_angles(a, b)
    # SciPy may give 1e-8 for an angle of 0; ours are held to more below.
    np.testing.assert_allclose(found, scipy.subspace_angles(a.T.numpy(), b.T.numpy())[::-1], rtol=1e-9, atol=1e-7)
    assert (found[: max(0, p + q - n)] < 1e-14).all()  # so many directions must be common to both
    torch.testing.assert_close(found, principal_angles(b, a), rtol=1e-9, atol=1e-13)


@given(
    st.lists(
        st.sampled_from([0, 1e-12, 1e-8, 1e-4, 0.3, 1.0, math.pi / 2 - 1e-9, math.pi / 2]), min_size=1, max_size=4
    ),
    st.integers(0, 2),
    st.integers(0, 99),
)
def test_angles_that_were_put_in(angles, more, seed):
    """Turn one orthonormal frame away from another by given angles, and mix the rows of both."""
    count = len(angles)
    frame = orthonormal(2 * count + more, 12, seed)
    turn = torch.tensor(angles, dtype=torch.float64)[:, None]
    a = frame[:count]
    b = torch.cat([a * turn.cos() + frame[count : 2 * count] * turn.sin(), frame[2 * count :]])
    # Mixing keeps the span; well-conditioned, so that it keeps the small angles too.
    a = orthonormal(count, count, seed + 1) @ a * 7
    b = orthonormal(len(b), len(b), seed + 2) @ b / 3
    expected = torch.tensor(sorted(angles), dtype=torch.float64)
    torch.testing.assert_close(principal_angles(a, b), expected, rtol=1e-9, atol=2e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dependent_rows_add_no_direction(dtype):
    a, b = random(3, 50).to(dtype), random(4, 50, seed=1).to(dtype)
    mixed = random(20, 4, seed=2).to(dtype) @ b  # rank 4, up to rounding in this precision
    found = principal_angles(a, torch.cat([mixed, torch.zeros(2, 50, dtype=dtype)]))
    atol = 1e-5 if dtype == torch.float32 else 1e-12
    torch.testing.assert_close(found, principal_angles(a, b), rtol=0, atol=atol)
    assert len(principal_angles(random(9, 50, seed=3), mixed)) == 4


def test_small_directions_of_the_data_are_kept():
    data = torch.eye(3, 10) * torch.tensor([[1.0], [1e-2], [1e-5]])
    assert len(principal_angles(torch.eye(10), data)) == 3


# The measures of pairs


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 8), st.integers(0, 99))
def test_cosine_pair_by_pair(k, count, n, seed):
    v, d = random(k, n, seed=seed), random(count, n, seed=seed + 1)
    found = similarity(v, d).cosine
    table = np.array([[abs(a @ b) / math.sqrt((a @ a) * (b @ b)) for b in d.numpy()] for a in v.numpy()])
    np.testing.assert_allclose(found.values, table, atol=1e-12)
    np.testing.assert_allclose(found.vector_best, table.max(1), atol=1e-12)
    np.testing.assert_allclose(found.vector_mean, table.mean(1), atol=1e-12)
    np.testing.assert_allclose(found.datum_best, table.max(0), atol=1e-12)
    np.testing.assert_allclose(found.datum_mean, table.mean(0), atol=1e-12)
    assert found.mean == pytest.approx(table.mean())


def test_cosine_with_nothing_is_zero():
    d = random(2, 5, seed=1)
    d[1] = 0
    assert torch.equal(similarity(random(3, 5), d).cosine.values[:, 1], torch.zeros(3).double())


def picture(x, contrast):
    """One picture in [0, 1], from its definition."""
    if contrast == "minmax":
        return (x - x.min()) / (x.max() - x.min())
    return 0.5 + 0.5 * x / abs(x).max()


@pytest.mark.parametrize("contrast", ["minmax", "symmetric"])
@pytest.mark.parametrize("channels, side, window", [(1, 13, 11), (3, 11, 11), (2, 6, 5), (1, 3, 3)])
def test_pictures_pair_by_pair(contrast, channels, side, window):
    v, d = random(3, channels, side, side + 1), random(2, channels, side, side + 1, seed=1)
    found = similarity(v, d, lpips=PixelDistance(), contrast=contrast, lpips_size=0)
    for i, one in enumerate(v):
        for j, datum in enumerate(d):
            truth = picture(datum, contrast)
            signs = [picture(one, contrast), picture(-one, contrast)]
            best = max(float(ssim(x[None], truth[None], window=window)) for x in signs)
            assert float(found.ssim.values[i, j]) == pytest.approx(best, abs=1e-5)
            if channels != 2:
                least = min(float((2 * x - 2 * truth).abs().mean()) for x in signs)
                assert float(found.lpips.values[i, j]) == pytest.approx(least, abs=1e-6)
    assert (found.lpips is None) == (channels == 2)
    torch.testing.assert_close(found.ssim.vector_best, found.ssim.values.amax(1))
    if found.lpips is not None:
        torch.testing.assert_close(found.lpips.vector_best, found.lpips.values.amin(1))
        torch.testing.assert_close(found.lpips.datum_best, found.lpips.values.amin(0))


@given(
    st.sampled_from(["minmax", "symmetric"]),
    st.lists(st.sampled_from([-3.0, -1.0, 0.5, 100.0]), min_size=2, max_size=2),
    st.integers(0, 99),
)
def test_a_vector_along_a_datum_is_its_picture(contrast, factors, seed):
    d = random(2, 1, 12, 12, seed=seed) + 1
    v = d * torch.tensor(factors).view(2, 1, 1, 1)
    found = similarity(v, d, lpips=PixelDistance(), contrast=contrast)
    for matches, perfect in ((found.cosine, 1.0), (found.ssim, 1.0), (found.lpips, 0.0)):
        for best in (matches.vector_best, matches.datum_best):
            torch.testing.assert_close(best, torch.full((2,), perfect).double(), rtol=0, atol=1e-5)
    assert found.angles.max() < 1e-7


@given(st.lists(st.booleans(), min_size=4, max_size=4), st.integers(0, 99))
def test_the_sign_is_free(flip, seed):
    v, d = random(4, 3, 7, 8, seed=seed), random(3, 3, 7, 8, seed=seed + 1)
    signs = torch.tensor([-1.0 if one else 1.0 for one in flip]).view(4, 1, 1, 1)
    one, other = (similarity(x, d, lpips=PixelDistance(), lpips_size=10) for x in (v, v * signs))
    torch.testing.assert_close(one.angles, other.angles)
    for name in ("cosine", "ssim", "lpips"):
        torch.testing.assert_close(getattr(one, name).values, getattr(other, name).values, rtol=0, atol=1e-5)


def test_a_picture_without_contrast_is_grey():
    for contrast, value in (("minmax", 3.0), ("symmetric", 0.0)):
        v = random(2, 1, 5, 5)
        v[0] = value
        d = torch.zeros(1, 1, 5, 5)
        d[0, 0, 0, 0] = 1  # black but for one pixel, or grey but for it
        found = similarity(v, d, lpips=PixelDistance(), contrast=contrast, lpips_size=0)
        assert float(found.lpips.values[0, 0]) == pytest.approx(1.0 if contrast == "minmax" else 1 / 25)


def test_small_pictures_are_enlarged_for_lpips():
    sizes = []

    class Spy(PixelDistance):
        def pairwise(self, a, b):
            sizes.append((tuple(a.shape), tuple(b.shape)))
            return super().pairwise(a, b)

    v, d = random(2, 1, 28, 56), random(3, 1, 28, 56, seed=1)
    similarity(v, d, lpips=Spy())
    similarity(v, d, lpips=Spy(), lpips_size=28)
    assert sizes == [((4, 1, 64, 128), (3, 1, 64, 128)), ((4, 1, 28, 56), (3, 1, 28, 56))]


def test_shapes_may_come_from_either_side():
    v, d = random(3, 1, 8, 9), random(2, 1, 8, 9, seed=1)
    expected = similarity(v, d)
    vectors = [
        (v.flatten(1), d),
        (v, d.flatten(1)),
        (SimpleNamespace(vectors=v.flatten(1), images=v), d.flatten(1)),
        (SimpleNamespace(vectors=v.flatten(1), images=None), d),
    ]
    for one, other in vectors:
        assert torch.equal(similarity(one, other).ssim.values, expected.ssim.values)
    for shape in ((72,), (8, 9), (1, 2, 36), (2, 2, 2, 9)):  # not pictures
        found = similarity(v.reshape(3, *shape), d.reshape(2, *shape), lpips=PixelDistance())
        assert found.ssim is None
        assert found.lpips is None
        assert torch.equal(found.cosine.values, expected.cosine.values)
        assert "–" in str(found)


def test_whole_numbers_and_half_precision():
    v, d = random(3, 1, 12, 12), torch.randint(0, 256, (2, 1, 12, 12), dtype=torch.uint8)
    found, expected = similarity(v.bfloat16().requires_grad_(), d), similarity(v.bfloat16().double(), d.double())
    for name in ("cosine", "ssim"):
        torch.testing.assert_close(getattr(found, name).values, getattr(expected, name).values)
    assert not found.ssim.values.requires_grad
    torch.testing.assert_close(found.angles, expected.angles)


# The result


def test_to_dict_is_json():
    found = similarity(random(3, 1, 12, 12), random(2, 1, 12, 12, seed=1))
    read = json.loads(json.dumps(found.to_dict()))
    assert list(read) == ["angles", "cosine", "ssim", "lpips"]
    assert read["lpips"] is None
    assert read["angles"] == found.angles.tolist()
    assert read["ssim"]["mean"] == found.ssim.mean
    assert read["ssim"]["vector_best"] == found.ssim.vector_best.tolist()
    assert [len(read["cosine"][name]) for name in ("vector_mean", "vector_best", "datum_mean", "datum_best")] == [
        3,
        3,
        2,
        2,
    ]


@pytest.mark.parametrize(
    "vectors, data, message",
    [
        (torch.rand(3, 5), torch.rand(2, 6), "(5,) and each datum (6,)"),
        (torch.rand(3, 1, 2, 3), torch.rand(2, 1, 3, 2), "(1, 2, 3) and each datum (1, 3, 2)"),
        (torch.rand(3, 1, 3, 3), torch.rand(2, 1, 9, 9), "patches"),
        (torch.rand(5), torch.rand(2, 5), "vectors must be a tensor of one or more rows"),
        (torch.rand(3, 5), torch.rand(5), "data must be a tensor of one or more rows"),
        (torch.rand(0, 5), torch.rand(2, 5), "vectors must be"),
        (torch.rand(3, 5), torch.rand(0, 5), "data must be"),
        (torch.rand(3, 0), torch.rand(2, 0), "vectors must be"),
        (torch.full((3, 5), torch.nan), torch.rand(2, 5), "vectors have NaN"),
        (torch.rand(3, 5), torch.full((2, 5), torch.inf), "data have NaN or infinite"),
        (torch.rand(3, 5), torch.zeros(2, 5), "data are all zero"),
    ],
)
def test_bad_values(vectors, data, message):
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        similarity(vectors, data)
    assert "\n" not in str(error.value)


def test_bad_types():
    with pytest.raises(ValueError, match="contrast must be one of"):
        similarity(torch.rand(2, 5), torch.rand(2, 5), contrast="high")
    with pytest.raises(TypeError, match="vectors must be a tensor, not ndarray"):
        similarity(np.ones((2, 5)), torch.rand(2, 5))
    with pytest.raises(TypeError, match="data must be a tensor, not list"):
        similarity(torch.rand(2, 5), [1.0])
    with pytest.raises(TypeError, match="data must be real"):
        similarity(torch.rand(2, 5), torch.rand(2, 5) + 0j)
