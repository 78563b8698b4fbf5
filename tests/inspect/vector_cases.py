"""References for the tests of singular vectors, in NumPy and loops."""

import numpy as np
import pytest
import torch


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def numpy(tensor):
    return tensor.detach().double().numpy()


def agree(found, matrix, atol=1e-7):
    """Values as NumPy has them; vectors orthonormal, in the span of NumPy's right vectors with about that value."""
    _, truth, right = np.linalg.svd(matrix)
    truth = np.concatenate([truth, np.zeros(len(right) - len(truth))])
    k, top = len(found), max(truth[0], 1e-300)
    assert k <= min(matrix.shape)
    assert found.vectors.shape == (k, matrix.shape[1])
    assert found.values.dtype == found.vectors.dtype == torch.float64
    np.testing.assert_allclose(found.values / top, truth[:k] / top, rtol=0, atol=atol)
    np.testing.assert_allclose(found.vectors @ found.vectors.mT, np.eye(k), atol=1e-9)
    largest = found.vectors.gather(1, found.vectors.abs().argmax(1, keepdim=True))
    assert (largest > 0).all()
    for value, vector in zip(found.values / top, found.vectors.numpy(), strict=True):
        near = right[abs(truth / top - value.item()) < 1e-3]
        assert np.square(near @ vector).sum() == pytest.approx(1, abs=1e-5)


def shares(vectors, rows):
    """The share of the energy of some rows that each vector carries, by loops."""
    vectors, rows = numpy(vectors), numpy(rows)
    energy = sum(float(row @ row) for row in rows)
    return [sum(float(row @ vector) ** 2 for row in rows) / energy for vector in vectors]


def conv1d_of_hugging_face():
    from transformers.pytorch_utils import Conv1D

    return Conv1D(5, 7)
