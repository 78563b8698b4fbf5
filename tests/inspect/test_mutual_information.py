"""Entropies and mutual information against hand-worked cases, scikit-learn, and mixtures by quadrature."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from racecar.inspect.mutual_information import (
    bin_codes,
    bin_edges,
    entropy,
    mutual_information,
    noise_bounds,
    row_codes,
)
from tests.inspect.common import sklearn_bits

H = -(0.25 * math.log2(0.25) + 0.75 * math.log2(0.75))  # entropy of a coin with p = 1/4: 0.811…


def ints(values):
    return torch.tensor(values)


@pytest.mark.parametrize(
    "codes, bits",
    [
        ([7], 0.0),
        ([3, 3, 3], 0.0),
        ([0, 1], 1.0),
        ([0, 1, 2, 3], 2.0),
        ([0, 0, 1, 2], 1.5),  # ½·1 + ¼·2 + ¼·2
        ([5, -9, -9, -9], H),
    ],
)
def test_entropy_by_hand(codes, bits):
    assert entropy(ints(codes)) == pytest.approx(bits, abs=1e-15)


@pytest.mark.parametrize(
    "a, b, bits",
    [
        ([0, 0, 1, 1], [0, 1, 0, 1], 0.0),  # every pair once: independent
        ([0, 0, 1, 1], [5, 5, 2, 2], 1.0),  # one determines the other
        ([0, 1, 2, 3], [0, 0, 1, 1], 1.0),  # b is half of what a knows: H(b)
        ([0, 0, 0, 0], [0, 1, 2, 3], 0.0),
        # H(a) = 1, H(b) = H(1/4). p(0,0) = ½, p(1,0) = ¼, p(1,1) = ¼:
        # ½ log2(½ / (½·¾)) + ¼ log2(¼ / (½·¾)) + ¼ log2(¼ / (½·¼)) = ½ log2 4/3 + ¼ log2 2/3 + ¼ = 0.311…
        ([0, 0, 1, 1], [0, 0, 0, 1], 0.5 * math.log2(4 / 3) + 0.25 * math.log2(2 / 3) + 0.25),
    ],
)
def test_mutual_information_by_hand(a, b, bits):
    assert mutual_information(ints(a), ints(b)) == pytest.approx(bits, abs=1e-15)


codes = st.integers(1, 60).flatmap(
    lambda n: st.tuples(*[st.lists(st.integers(-5, 5), min_size=n, max_size=n) for _ in range(2)])
)


@given(codes)
def test_agrees_with_scikit_learn(pair):
    a, b = map(ints, pair)
    assert mutual_information(a, b) == pytest.approx(sklearn_bits(*pair), abs=1e-9)
    assert entropy(a) == pytest.approx(sklearn_bits(pair[0], pair[0]), abs=1e-9)


@given(codes, st.integers(1, 4), st.randoms(use_true_random=False))
def test_symmetric_blind_to_names_and_order_and_never_more_for_merged_codes(pair, merge, random):
    a, b = map(ints, pair)
    bits = mutual_information(a, b)
    assert mutual_information(b, a) == pytest.approx(bits, abs=1e-12)
    names = random.sample(range(-1000, 1000), 11)
    order = torch.tensor(random.sample(range(len(a)), len(a)))
    renamed = ints([names[code + 5] for code in a.tolist()])
    assert mutual_information(renamed[order], b[order]) == pytest.approx(bits, abs=1e-12)
    assert mutual_information(a.div(merge, rounding_mode="floor"), b) <= bits + 1e-12
    assert bits <= min(entropy(a), entropy(b)) + 1e-12


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32, torch.float16, torch.bfloat16, torch.float64])
def test_row_codes(dtype):
    rows = torch.tensor([[0, 1], [1, 0], [0, 1], [1, 1]]).to(dtype)
    a, b, c, d = row_codes(rows).tolist()
    assert a == c
    assert sorted([a, b, d]) == [0, 1, 2]
    assert row_codes(torch.tensor([[0.0], [-0.0]])).tolist() == [0, 0]


def test_edges_by_hand():
    d = torch.tensor([[0.0, 1.0], [2.0, 4.0]])
    assert bin_edges(d, 4, "range").tolist() == [1, 2, 3]
    assert bin_edges(d, 4, "fixed", (-1, 1)).tolist() == [-0.5, 0, 0.5]
    assert bin_edges(d, 2, "mass").tolist() == [2]
    assert bin_edges(d, 4, "mass").tolist() == [1, 2, 4]
    assert bin_edges(d, 9, "mass").tolist() == [1, 2, 4]  # no more bins than values
    assert bin_edges(torch.ones(3, 2), 4, "mass").tolist() == []
    for binning in ("range", "mass"):
        assert bin_edges(d, 1, binning).tolist() == []


def test_equal_mass_holds_equal_mass_and_keeps_the_zeros_of_a_relu_together():
    torch.manual_seed(0)
    d = torch.randn(100, 6)
    held = torch.bucketize(d.double(), bin_edges(d, 30, "mass"), right=True).flatten().bincount()
    assert held.tolist() == [20] * 30
    d = d.relu()
    bins = torch.bucketize(d.double(), bin_edges(d, 30, "mass"), right=True)
    assert (bins == 0).equal(d == 0)  # a bin of their own
    assert bins.flatten().bincount()[2:].tolist() == [20] * int(bins.max() - 1)  # the rest as before, the first one cut


def test_codes_by_hand():
    d = torch.tensor([[-1.0, 0.0], [-0.9, 0.1], [0.0, -0.1], [1.0, 1.0], [0.3, -0.2]])
    # Two bins over [−1, 1], a value on the edge above it: (0,1) (0,1) (1,0) (1,1) (1,0).
    a, b, c, e, f = bin_codes(d, bin_edges(d, 2, "fixed", (-1, 1))).tolist()
    assert (a, c) == (b, f)
    assert len({a, c, e}) == 3
    assert bin_codes(d, bin_edges(d, 1, "range")).tolist() == [0] * 5


@given(st.integers(1, 40), st.integers(1, 50), st.sampled_from([1, 2, 3, 30, 1000]), st.integers(0, 9))
def test_codes_are_the_distinct_rows_of_bins(n, features, bins, seed):
    generator = torch.Generator().manual_seed(seed)
    # Few rows differ, and late: in their last neurons.
    d = torch.rand(3, features, generator=generator)[torch.randint(0, 3, (n,), generator=generator)]
    d[:, -1] += torch.randint(0, 2, (n,), generator=generator)
    edges = bin_edges(d, bins, "fixed", (0, 2))
    found = bin_codes(d.reshape(n, features, 1), edges)
    truth = np.unique(np.digitize(d.double().numpy(), edges.numpy()), axis=0, return_inverse=True)[1].reshape(-1)
    assert int(found.max()) == truth.max()
    assert len({*zip(found.tolist(), truth.tolist(), strict=True)}) == truth.max() + 1  # the same but for their names


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int64])
@pytest.mark.parametrize("binning", ["range", "mass"])
def test_any_dtype_is_binned_like_its_float64(dtype, binning):
    d = (torch.randn(50, 4, generator=torch.Generator().manual_seed(0)) * 3).to(dtype)
    assert bin_edges(d, 7, binning).equal(bin_edges(d.double(), 7, binning))
    edges = bin_edges(d, 7, binning)
    assert bin_codes(d, edges).equal(bin_codes(d.double(), edges))


def mixture_truth(points, labels, sigma):
    """I(X;T) and I(T;Y) of one neuron with noise, by quadrature."""
    points = np.asarray(points, float)
    t = np.linspace(points.min() - 12 * sigma, points.max() + 12 * sigma, 20_001)
    density = np.exp(-((t - points[:, None]) ** 2) / (2 * sigma**2)) / math.sqrt(2 * math.pi * sigma**2)

    def h(p):
        return -np.trapezoid(p * np.log2(np.maximum(p, 1e-300)), t)

    i_xt = h(density.mean(0)) - h(density[0])
    classes = [density[np.asarray(labels) == y] for y in set(labels)]
    return i_xt, h(density.mean(0)) - sum(len(c) / len(points) * h(c.mean(0)) for c in classes)


@pytest.mark.parametrize("sigma", [0.01, 0.1, 0.3, 1.0, 3.0, 100.0])
@pytest.mark.parametrize(
    "points, labels",
    [
        ([0.0, 1.0], [0, 1]),
        ([0.0, 1.0, 1.5, 4.0, 4.0], [0, 0, 1, 1, 2]),
        ([-2.0, -1.9, -1.8, 0.3, 0.4, 2.0, 2.0, 2.5], [0, 1, 0, 1, 1, 0, 0, 0]),
    ],
)
def test_noise_bounds_enclose_the_truth(points, labels, sigma):
    i_xt, i_ty = mixture_truth(points, labels, sigma)
    found = noise_bounds(torch.tensor(points), ints(labels), sigma)
    for (low, high), truth in ((found.i_xd, i_xt), (found.i_dy, i_ty)):
        assert low - 1e-9 <= truth <= high + 1e-9
        assert low >= 0
    low, high = found.i_dy_kde
    assert min(low, high) - 0.05 <= i_ty <= max(low, high) + 0.05


def test_noise_bounds_by_hand():
    # Points 0 and 2, σ = 1. KL: e^(−4/2) = e^−2; Bhattacharyya: e^(−4/8) = e^−½. Mean similarity (1 + e^…)/2 for both.
    found = noise_bounds(torch.tensor([[0.0], [2.0]]), ints([0, 1]), 1.0)
    low, high = 1 - math.log2(1 + math.exp(-0.5)), 1 - math.log2(1 + math.exp(-2))
    assert found.i_xd == pytest.approx((low, high), abs=1e-12)
    # One sample per label: nothing is left to know of X once Y is known, so the bounds are the same.
    assert found.i_dy == pytest.approx((low, high), abs=1e-12)
    assert found.i_dy_kde == pytest.approx((low, high), abs=1e-12)


def test_noise_bounds_against_sums_over_pairs_in_any_chunks(monkeypatch):
    torch.manual_seed(0)
    d, y, sigma = torch.randn(40, 2, 3).double() + 1e5, torch.randint(0, 3, (40,)), 0.7
    rows, labels = d.flatten(1).double().numpy(), y.numpy()
    squares = ((rows[:, None] - rows) ** 2).sum(-1)
    sums = []
    for similarity in (np.exp(-squares / (8 * sigma**2)), np.exp(-squares / (2 * sigma**2))):
        own = [similarity[i, labels == labels[i]].mean() for i in range(40)]
        sums += [-np.log2(similarity.mean(1)).mean(), -np.log2(own).mean()]
    low, own_low, high, own_high = sums
    for pairs in (1, 40 * 7, 2**22):
        monkeypatch.setitem(noise_bounds.__globals__, "PAIRS", pairs)
        found = noise_bounds(d, y, sigma)
        assert found.i_xd == pytest.approx((low, high), abs=1e-9)
        assert found.i_dy == pytest.approx((max(0, low - own_high), min(entropy(y), high - own_low)), abs=1e-9)
        assert found.i_dy_kde == pytest.approx((low - own_low, high - own_high), abs=1e-9)


def test_noise_bounds_between_no_noise_and_nothing_but_noise():
    y = torch.arange(64) % 4
    d = torch.arange(64).float()[:, None].expand(64, 5) // 2  # pairs of equal samples: 32 distinct inputs
    little, much = noise_bounds(d, y // 2, 1e-3), noise_bounds(d, y // 2, 1e6)
    assert little.i_xd == pytest.approx((5, 5), abs=1e-9)
    assert little.i_dy == pytest.approx((1, 1), abs=1e-9)
    assert (*much.i_xd, *much.i_dy, *much.i_dy_kde) == pytest.approx((0,) * 6, abs=1e-6)


@given(st.integers(2, 30), st.integers(1, 4), st.floats(0.01, 100), st.integers(0, 99))
def test_noise_bounds_are_ordered_and_fall_with_the_noise(n, features, sigma, seed):
    generator = torch.Generator().manual_seed(seed)
    d, y = torch.randn(n, features, generator=generator), torch.randint(0, 3, (n,), generator=generator)
    found, noisier = noise_bounds(d, y, sigma), noise_bounds(d, y, 2 * sigma)
    assert 0 <= found.i_xd[0] <= found.i_xd[1] + 1e-12
    assert found.i_xd[1] <= math.log2(n)
    assert 0 <= found.i_dy[0] <= found.i_dy[1] + 1e-12
    assert found.i_dy[1] <= entropy(y)
    # The lower bound's kernel is the upper bound's at twice the noise.
    assert noisier.i_xd[1] == pytest.approx(found.i_xd[0], abs=1e-9)


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda: entropy(torch.rand(3)), TypeError, "codes must be integers, not torch.float32"),
        (lambda: entropy(torch.zeros(0, dtype=torch.int64)), ValueError, "N ≥ 1"),
        (lambda: mutual_information(ints([0, 1]), ints([0])), ValueError, "one length"),
        (lambda: mutual_information(ints([[0, 1]]), ints([[0, 1]])), ValueError, "codes_a must be of shape"),
        (lambda: mutual_information(ints([0]), torch.rand(1)), TypeError, "codes_b must be integers"),
        (lambda: bin_edges(torch.rand(3), 0, "range"), ValueError, "bins must be a whole number"),
        (lambda: bin_edges(torch.rand(3), 2.5, "range"), ValueError, "bins must be a whole number"),
        (lambda: bin_edges(torch.rand(3), 3, "wide"), ValueError, "'fixed', 'range', 'mass', not 'wide'"),
        (lambda: bin_edges(torch.rand(3), 3, "fixed"), ValueError, "needs range="),
        (lambda: bin_edges(torch.rand(3), 3, "fixed", (1, 1)), ValueError, "low < high"),
        (lambda: bin_edges(torch.rand(3), 3, "fixed", (0, math.inf)), ValueError, "finite"),
        (lambda: noise_bounds(torch.rand(3, 1), ints([0, 1, 2]), 0.0), ValueError, "sigma must be"),
        (lambda: noise_bounds(torch.rand(3, 1), ints([0, 1, 2]), math.nan), ValueError, "sigma must be"),
        (lambda: noise_bounds(torch.rand(3, 1), ints([0, 1, 2]), 1e-12), ValueError, "lost beside values"),
        (lambda: noise_bounds(torch.rand(3, 1), ints([0, 1]), 1.0), ValueError, "3 samples, but 2 labels"),
    ],
)
def test_bad_input(call, error, words):
    with pytest.raises(error, match=words.replace("(", r"\(")):
        call()
