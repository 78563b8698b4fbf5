"""A layer's right singular vectors: the input directions that it passes on, as pictures if its inputs are pictures."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from racecar.inspect.krylov import top_singular
from racecar.inspect.matrices import LayerInputs, Weight, operator_of, weight_of
from racecar.inspect.unwrap import unwrapped
from racecar.racecar import call_arguments
from racecar.reverse.forward_pass import ForwardPass
from racecar.support.eval_mode import eval_mode
from racecar.watch.batches import ExampleInputs
from racecar.watch.names import shown

ORDERS = ("value", "data")
DENSE = 4096
"""Largest input size for which an operator is written out as a matrix to compute all its singular vectors."""
FULL = 1500
"""Matrix size above which a few singular vectors are computed iteratively, not by a full SVD."""


@dataclass(frozen=True, eq=False)
class SingularVectors:
    """The k right singular vectors of one layer, with their singular values. Prints as a table."""

    layer: str
    """Qualified name of the layer."""
    values: Tensor
    """Singular values, (k,)."""
    vectors: Tensor
    """Right singular vectors, (k, n), orthonormal; the sign is chosen so that the largest entry is positive."""
    shape: tuple[int, ...]
    """Shape of one vector before it is flattened: (C, H, W), or (n,) if the layer's inputs are no pictures."""
    carried: Tensor | None
    """Share of the energy Σ‖x‖² of the layer's inputs x that lies along each vector, (k,); None without data."""
    operator: bool
    """True: singular vectors of the whole convolution as an operator; False: of the weight as a matrix."""
    order: str
    """Quantity by which the vectors are sorted, largest first: "value" (singular value) or "data" (``carried``)."""

    @property
    def images(self) -> Tensor | None:
        """The vectors as pictures (k, C, H, W); None if the layer's inputs are no pictures."""
        return self.vectors.reshape(-1, *self.shape) if len(self.shape) == 3 else None

    def ordered(self, order: str) -> SingularVectors:
        """A copy with the vectors sorted by "value" (singular value) or by "data" (``carried``), largest first."""
        indices = _ranks(self.values, self.carried, order)
        carried = None if self.carried is None else self.carried[indices]
        return replace(self, values=self.values[indices], vectors=self.vectors[indices], carried=carried, order=order)

    def __len__(self) -> int:
        return len(self.values)

    def __str__(self) -> str:
        head = f"{len(self)} right singular vectors of {shown(self.layer)}, shape {self.shape}, by {self.order}"
        shares = [None] * len(self) if self.carried is None else self.carried.tolist()
        rows = [
            f"{i + 1:5}  {value:10.4g}" + ("" if share is None else f"  {share:8.2%}")
            for i, (value, share) in enumerate(zip(self.values.tolist(), shares, strict=True))
        ]
        return "\n".join([head, "    #       value" + ("" if self.carried is None else "   carried"), *rows])

    def to_dict(self) -> dict[str, Any]:
        """Everything but the vectors as a dict for JSON."""
        return {
            "layer": self.layer,
            "shape": list(self.shape),
            "operator": self.operator,
            "order": self.order,
            "values": self.values.tolist(),
            "carried": None if self.carried is None else self.carried.tolist(),
        }


def singular_vectors(
    model: nn.Module,
    layer: str,
    k: int | None = None,
    *,
    data: ExampleInputs | None = None,
    operator: bool = False,
    size: tuple[int, ...] | None = None,
    order: str = "value",
) -> SingularVectors:
    """Compute the right singular vectors of a layer's matrix: the input directions that it passes on, strongest first.

    Training with the racecar loss drives some of them to the dominant features of the data, at singular values near 1.
    Those need not be the largest values: with ``data`` the vectors can be sorted by the share of the data along each.

    Args:
        model: any module, or a Racecar; nothing in it is changed.
        layer: qualified name of the layer ("" for a model that is one layer; "attn.in_proj_weight" for one of several
            weights).
        k: number of vectors; None: all.
        data: inputs of the model, as for ``Racecar``. They give the shape of the layer's inputs, and the share of the
            inputs' energy along each vector.
        operator: for a convolution: True for the singular vectors of the whole operator, with stride and padding, on
            one input size; False for those of the kernel flattened to out × rest.
        size: shape (C, H, W) of one input of the layer, if ``data`` is not given: for an operator, or for the vectors
            of a linear layer on flattened pictures as pictures.
        order: what to sort by, largest first: "value" (singular value) or "data" (share of the data's energy).

    Returns:
        Values (k,) and vectors (k, n) in float64 on the CPU.
    """
    if order not in ORDERS:
        raise ValueError(f"order must be one of {', '.join(ORDERS)}, not {order!r}")
    if order == "data" and data is None:
        raise ValueError("order='data' needs data: inputs of the model")
    model, layer_inputs = unwrapped(model), None
    with eval_mode(model):  # a weight that is computed may change buffers in training
        weight = weight_of(model, layer)
        if data is not None:
            layer_inputs = LayerInputs(ForwardPass(model, *call_arguments(data, model)), layer)
            matrix = layer_inputs.matrix
            if matrix is not None:  # it may have been used transposed
                shape = weight.shape if matrix.shape == weight.matrix.shape else (matrix.shape[1],)
                weight = replace(weight, matrix=matrix, shape=shape)
    if operator:
        shape = _input_size(weight, layer_inputs, size)
        values, vectors = _of_operator(weight, shape, k, order)
    else:
        values, vectors = _of_matrix(weight.matrix, k, order)
        shape = _vector_shape(weight, layer_inputs, size)
    vectors = vectors * vectors.gather(1, vectors.abs().argmax(1, keepdim=True)).sign()
    carried = None if layer_inputs is None else layer_inputs.carried(vectors, whole=operator)
    indices = _ranks(values, carried, order)[: _count(k, len(values))]
    carried = None if carried is None else carried[indices]
    return SingularVectors(layer, values[indices], vectors[indices], shape, carried, operator, order)


def _count(k: int | None, most: int) -> int:
    """How many vectors to return: k, at most ``most``; all if k is None."""
    if k is None:
        return most
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise ValueError(f"k must be a whole number of at least 1, not {k!r}")
    return min(k, most)


def _ranks(values: Tensor, carried: Tensor | None, order: str) -> Tensor:
    """Indices (k,) that sort the vectors by ``order``, largest first."""
    if order not in ORDERS:
        raise ValueError(f"order must be one of {', '.join(ORDERS)}, not {order!r}")
    if order == "value":
        return values.argsort(descending=True, stable=True)
    if carried is None:
        raise ValueError("order='data' needs singular vectors that were made with data")
    return carried.argsort(descending=True, stable=True)


def _of_matrix(matrix: Tensor, k: int | None, order: str) -> tuple[Tensor, Tensor]:
    """Singular values (r,) and right singular vectors (r, n) of a matrix (m, n): the k largest, or more."""
    most = min(matrix.shape)
    count = _count(k, most)
    if order == "value" and most > FULL and 8 * count < most:
        start = _start(matrix.shape[1], count)
        return top_singular(lambda x: x @ matrix.mT, lambda y: y @ matrix, start, count)
    _, values, vectors = torch.linalg.svd(matrix, full_matrices=False)
    return values, vectors


def _of_operator(weight: Weight, size: tuple[int, ...], k: int | None, order: str) -> tuple[Tensor, Tensor]:
    """Singular values (r,) and right singular vectors (r, n) of a convolution on inputs of ``size``: the k largest, or
    more."""
    apply, adjoint, outputs = operator_of(weight, size)
    n = torch.Size(size).numel()
    if order == "value" and k is not None and 8 * (k := _count(k, min(n, outputs))) < n:
        return top_singular(apply, adjoint, _start(n, k), k)
    if n > DENSE:
        raise ValueError(
            f"the operator of layer {shown(weight.name)!r} on inputs of size {size} has {n} singular vectors, too many "
            "to compute them all: give k (with order='value') or a smaller size"
        )
    matrix = torch.cat([apply(part) for part in torch.eye(n, dtype=torch.float64).split(256)]).mT
    return _of_matrix(matrix, None, order)


def _start(n: int, k: int) -> Tensor:
    """Random rows (b, n) to start the iteration from, always the same; b > k, which speeds up the last of the k."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(min(n, k + max(8, k // 2)), n, dtype=torch.float64, generator=generator)


def _input_size(weight: Weight, layer_inputs: LayerInputs | None, size: tuple[int, ...] | None) -> tuple[int, ...]:
    """The shape of one input of an operator."""
    if size is not None:
        return tuple(size)
    if layer_inputs is None:
        raise ValueError(
            f"operator=True needs the input size of layer {shown(weight.name)!r}: give size=(C, H, W) or data"
        )
    return tuple(layer_inputs.whole.shape[1:])


def _vector_shape(weight: Weight, layer_inputs: LayerInputs | None, size: tuple[int, ...] | None) -> tuple[int, ...]:
    """The shape of one right singular vector of a weight's matrix: (C, H, W) of a picture, or (n,)."""
    n = weight.matrix.shape[1]
    if len(weight.shape) > 1:
        if size is not None:
            raise ValueError(
                f"size is for linear layers and operators; the kernel of {shown(weight.name)!r} has its own"
            )
        return weight.shape
    if size is not None:
        if torch.Size(size).numel() != n:
            raise ValueError(
                f"size {tuple(size)} has {torch.Size(size).numel()} elements, layer {shown(weight.name)!r} sees {n}"
            )
        return tuple(size) if len(size) != 2 else (1, *size)
    picture = layer_inputs.picture if layer_inputs is not None else None
    return picture if picture is not None and torch.Size(picture).numel() == n else weight.shape
