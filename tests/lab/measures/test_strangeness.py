"""Scores of strange samples, on data of which the answer is known."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats
from sklearn.metrics import roc_auc_score

from racecar_lab.measures.strangeness import Mahalanobis, auroc, energy, squared_errors, unsure

scores = st.lists(st.integers(-3, 3), min_size=1, max_size=12)


@given(scores, scores)
def test_auroc_by_sklearn(known, strange):
    wanted = roc_auc_score([0] * len(known) + [1] * len(strange), known + strange)
    assert auroc(torch.tensor(known), torch.tensor(strange)) == pytest.approx(wanted)


def test_auroc_of_what_is_no_number():
    assert math.isnan(auroc(torch.tensor([0.0, math.nan]), torch.ones(2)))
    assert auroc(torch.zeros(3), torch.tensor([math.inf])) == 1.0


def test_scores_of_logits():
    logits = torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]])
    most = logits.softmax(1).amax(1)
    torch.testing.assert_close(unsure(logits).float(), -most.log())
    torch.testing.assert_close(energy(logits).float(), -logits.exp().sum(1).log())
    sure = torch.tensor([[20.0, 0.0], [25.0, 0.0], [30.0, 0.0]])
    assert len(sure.softmax(1).amax(1).unique()) == 1  # which rounds to 1
    assert unsure(sure).diff().lt(0).all()


@pytest.fixture(scope="module")
def gaussians():
    """Three classes far apart with one skewed covariance: features, labels, the skew, and new samples of class 1."""
    generator = torch.Generator().manual_seed(0)
    skew = torch.randn(4, 4, generator=generator, dtype=torch.float64)
    means = 100 * torch.randn(3, 4, generator=generator, dtype=torch.float64)
    y = torch.arange(30000) % 3
    drawn = torch.randn(50000, 4, generator=generator, dtype=torch.float64)
    return means[y] + drawn[:30000] @ skew.t(), y, skew, means[1] + drawn[30000:] @ skew.t()


def test_mahalanobis_of_gaussians(gaussians):
    """Distances are χ², and non-central χ² where the mean has moved: their AUROC is an integral."""
    x, y, skew, new = gaussians
    fitted = Mahalanobis.fit(x, y)
    known, moved = new[:10000], new[10000:] + 2 * skew[:, 0]
    assert float(fitted(known).mean()) == pytest.approx(4, rel=0.03)
    assert float(fitted(moved).mean()) == pytest.approx(4 + 2**2, rel=0.03)
    wanted, _ = integrate.quad(lambda t: stats.chi2.pdf(t, 4) * stats.ncx2.sf(t, 4, 2**2), 0, 60)
    assert auroc(fitted(known), fitted(moved)) == pytest.approx(wanted, abs=0.01)


def test_mahalanobis_by_its_formula(gaussians):
    """The nearest of (f − μ)ᵀ Σ⁻¹ (f − μ); a feature that never varies changes nothing."""
    x, y, _, new = gaussians
    means = torch.stack([x[y == label].mean(0) for label in range(3)])
    apart = x - means[y]
    inverse = torch.linalg.inv(apart.t() @ apart / len(apart))
    away = new[:20, None] - means
    wanted = torch.einsum("nki,ij,nkj->nk", away, inverse, away).amin(1)
    torch.testing.assert_close(Mahalanobis.fit(x, y)(new[:20]), wanted, rtol=1e-6, atol=1e-6)
    dead = Mahalanobis.fit(torch.cat((x, torch.full((len(x), 1), 7.0)), 1), y)
    torch.testing.assert_close(dead(torch.cat((new[:20], torch.zeros(20, 1)), 1)), wanted, rtol=1e-6, atol=1e-6)


def test_squared_errors():
    x = torch.tensor([[[1.0, 2.0]], [[0.0, 0.0]]])
    plain, relative = squared_errors(x, torch.tensor([[[1.0, 0.0]], [[3.0, 0.0]]]))
    assert plain.tolist() == [4.0, 9.0]
    assert relative.tolist() == [0.8, 0.0]
