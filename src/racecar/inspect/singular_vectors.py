"""What a layer looks for: its right singular vectors, as pictures where it sees pictures."""

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
"""Up to this size an operator is written out as a matrix where all its singular vectors are needed."""
FULL = 1500
"""Above this size a few singular vectors of a matrix are searched instead of all computed."""


@dataclass(frozen=True, eq=False)
class SingularVectors:
    """Right singular vectors of one layer."""

    layer: str
    values: Tensor
    """(k,) singular values."""
    vectors: Tensor
    """(k, n), orthonormal; the sign is free, here the entry of largest size is positive."""
    shape: tuple[int, ...]
    """What one vector is: (C, H, W), or (n,) where the layer sees no picture."""
    carried: Tensor | None
    """(k,) share of the energy of the layer's data along each vector; None without data."""
    operator: bool
    """Whether they are those of the whole convolution, not of its kernel."""
    order: str

    @property
    def images(self) -> Tensor | None:
        """(k, C, H, W), or None where the layer sees no picture."""
        return self.vectors.reshape(-1, *self.shape) if len(self.shape) == 3 else None

    def ordered(self, order: str) -> SingularVectors:
        """The same vectors sorted by singular "value", or by how much of the "data" they carry."""
        by = _ranks(self.values, self.carried, order)
        carried = None if self.carried is None else self.carried[by]
        return replace(self, values=self.values[by], vectors=self.vectors[by], carried=carried, order=order)

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
        """The numbers, ready for JSON."""
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
    """The right singular vectors of a layer's matrix: the inputs that it passes on, strongest first.

    Training with the reverse pass drives them to the dominant features of the data, at singular values near 1. Those
    need not be the largest: with ``data`` they can be sorted by how much of it they carry.

    Args:
        model: any module, or a Racecar; nothing in it is changed.
        layer: qualified name of the layer ("" for a model that is one layer; "attn.in_proj_weight" for one of several
            weights).
        k: how many; all if None.
        data: inputs of the model, as for ``Racecar``. They say what the layer's inputs look like and how much of them
            each vector carries.
        operator: of a convolution, the singular vectors of the whole operator (stride, padding and all) on one input
            size, instead of those of the kernel flattened to out × rest.
        size: (C, H, W) of one input of the layer, where ``data`` does not say: for an operator, or to see the vectors
            of a linear layer on flattened pictures as pictures.
        order: "value", or "data": by the share of the data's energy.

    Returns:
        Values (k,) and vectors (k, n) in float64 on the CPU.
    """
    if order not in ORDERS:
        raise ValueError(f"order must be one of {', '.join(ORDERS)}, not {order!r}")
    if order == "data" and data is None:
        raise ValueError("order='data' needs data: inputs of the model")
    model, seen = unwrapped(model), None
    with eval_mode(model):  # a weight that is computed may change buffers in training
        weight = weight_of(model, layer)
        if data is not None:
            seen = LayerInputs(ForwardPass(model, *call_arguments(data, model)), layer)
            matrix = seen.matrix
            if matrix is not None:  # it may have been used transposed
                shape = weight.shape if matrix.shape == weight.matrix.shape else (matrix.shape[1],)
                weight = replace(weight, matrix=matrix, shape=shape)
    if operator:
        shape = _size(weight, seen, size)
        values, vectors = _of_operator(weight, shape, k, order)
    else:
        values, vectors = _of_matrix(weight.matrix, k, order)
        shape = _picture(weight, seen, size)
    vectors = vectors * vectors.gather(1, vectors.abs().argmax(1, keepdim=True)).sign()
    carried = None if seen is None else seen.carried(vectors, whole=operator)
    by = _ranks(values, carried, order)[: _count(k, len(values))]
    carried = None if carried is None else carried[by]
    return SingularVectors(layer, values[by], vectors[by], shape, carried, operator, order)


def _count(k: int | None, most: int) -> int:
    if k is None:
        return most
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise ValueError(f"k must be a whole number of at least 1, not {k!r}")
    return min(k, most)


def _ranks(values: Tensor, carried: Tensor | None, order: str) -> Tensor:
    if order not in ORDERS:
        raise ValueError(f"order must be one of {', '.join(ORDERS)}, not {order!r}")
    if order == "value":
        return values.argsort(descending=True, stable=True)
    if carried is None:
        raise ValueError("order='data' needs singular vectors that were made with data")
    return carried.argsort(descending=True, stable=True)


def _of_matrix(matrix: Tensor, k: int | None, order: str) -> tuple[Tensor, Tensor]:
    most = min(matrix.shape)
    count = _count(k, most)
    if order == "value" and most > FULL and 8 * count < most:
        start = _start(matrix.shape[1], count)
        return top_singular(lambda x: x @ matrix.mT, lambda y: y @ matrix, start, count)
    _, values, vectors = torch.linalg.svd(matrix, full_matrices=False)
    return values, vectors


def _of_operator(weight: Weight, size: tuple[int, ...], k: int | None, order: str) -> tuple[Tensor, Tensor]:
    apply, adjoint, made = operator_of(weight, size)
    n = torch.Size(size).numel()
    if order == "value" and k is not None and 8 * (k := _count(k, min(n, made))) < n:
        return top_singular(apply, adjoint, _start(n, k), k)
    if n > DENSE:
        raise ValueError(
            f"the operator of layer {shown(weight.name)!r} on inputs of size {size} has {n} singular vectors, too many "
            "to compute them all: give k (with order='value') or a smaller size"
        )
    matrix = torch.cat([apply(part) for part in torch.eye(n, dtype=torch.float64).split(256)]).mT
    return _of_matrix(matrix, None, order)


def _start(n: int, k: int) -> Tensor:
    """Random rows, always the same ones, with some to spare: they speed up the last of the k."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(min(n, k + max(8, k // 2)), n, dtype=torch.float64, generator=generator)


def _size(weight: Weight, seen: LayerInputs | None, size: tuple[int, ...] | None) -> tuple[int, ...]:
    """The input size of an operator."""
    if size is not None:
        return tuple(size)
    if seen is None:
        raise ValueError(
            f"operator=True needs the input size of layer {shown(weight.name)!r}: give size=(C, H, W) or data"
        )
    return tuple(seen.whole.shape[1:])


def _picture(weight: Weight, seen: LayerInputs | None, size: tuple[int, ...] | None) -> tuple[int, ...]:
    """The shape in which a vector of a matrix is looked at."""
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
    picture = seen.picture if seen is not None else None
    return picture if picture is not None and torch.Size(picture).numel() == n else weight.shape
