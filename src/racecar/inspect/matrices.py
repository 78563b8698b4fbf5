"""A layer as a linear map: its weight as a matrix, its operator on whole inputs, and the inputs that it gets."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from racecar.plan.graph import Op
from racecar.plan.layer import Layer
from racecar.reverse.forward_pass import ForwardPass
from racecar.rules.roles import Role
from racecar.rules.shape import reshape
from racecar.support.torch_private import AnyConv, AnyConvTranspose, own_parameters
from racecar.watch.names import MODEL, shown

_CONV = {1: torch.conv1d, 2: torch.conv2d, 3: torch.conv3d}


@dataclass(frozen=True, eq=False)
class Weight:
    """A layer's weight as a matrix M that maps input vectors to output vectors."""

    name: str
    """Qualified name of the layer."""
    module: nn.Module
    """The module that owns the weight."""
    matrix: Tensor
    """M, (outputs, n), float64, on the CPU; a convolution's kernel is flattened to out × rest."""
    shape: tuple[int, ...]
    """Shape of one input vector before it is flattened to n numbers: (in/groups, kh, kw) for a 2-d convolution, (n,)
    for a linear layer."""


def weight_of(model: nn.Module, layer: str) -> Weight:
    """The weight of a layer as a matrix.

    Args:
        model: the model that the layer is in.
        layer: its qualified name; for one of a module's several weights "module.weight_name".
    """
    layer = "" if layer == MODEL else layer.partition("#")[0]  # later uses of a layer have the same weight
    modules = dict(model.named_modules(remove_duplicate=False))
    holder, _, attribute = layer.rpartition(".")
    if layer in modules:
        module = modules[layer]
        weights = [name for name, p in own_parameters(module).items() if p is not None and p.dim() > 1]
        attribute = weights[0] if len(weights) == 1 and not hasattr(module, "weight") else "weight"
    elif holder in modules and isinstance(getattr(modules[holder], attribute, None), Tensor):
        module = modules[holder]
    else:
        raise ValueError(f"no layer {shown(layer)!r}; the layers are: {_known(modules)}")
    weight = getattr(module, attribute, None)
    if not isinstance(weight, Tensor) or weight.dim() < 2:
        raise ValueError(
            f"{type(module).__name__} {shown(layer)!r} has no weight matrix; layers with one: {_known(modules)}"
        )
    if not bool(weight.isfinite().all()):
        raise ValueError(f"the weight of layer {shown(layer)!r} has values that are not finite")
    kernel = weight.detach().to("cpu", torch.float64)
    shape: tuple[int, ...]
    if isinstance(module, AnyConvTranspose):  # (in, out/groups, k…): its inputs are in/groups channels at a position
        inputs = kernel.shape[0] // module.groups
        matrix, shape = kernel.unflatten(0, (module.groups, inputs)).transpose(0, 1).reshape(inputs, -1).mT, (inputs,)
    elif type(module).__name__ == "Conv1D" and hasattr(module, "nf"):  # Hugging Face's: (in, out)
        matrix, shape = kernel.mT, (kernel.shape[0],)
    else:
        matrix, shape = kernel.flatten(1), tuple(kernel.shape[1:])
    return Weight(layer, module, matrix, shape)


def _known(modules: dict[str, nn.Module]) -> str:
    """The names of all layers with a weight matrix, for an error message."""
    names = []
    for name, module in modules.items():
        weight = getattr(module, "weight", None)
        if isinstance(weight, Tensor) and weight.dim() > 1 and not isinstance(module, nn.Embedding):
            names.append(shown(name))
    return ", ".join(names) or "none"


Map = Callable[[Tensor], Tensor]


def operator_of(weight: Weight, size: tuple[int, ...]) -> tuple[Map, Map, int]:
    """A layer without its bias as a linear operator A on whole inputs of ``size`` (C, H, W).

    Returns:
        A as a function (b, n) → (b, m), its adjoint Aᵀ as a function (b, m) → (b, n), both in float64, and m, the
        number of elements of one output; n is C · H · W.
    """
    module = weight.module
    if not isinstance(module, (nn.Linear, AnyConv)) and type(module).__name__ != "Conv1D":
        raise ValueError(
            f"operator=True is for linear layers and convolutions; {shown(weight.name)!r} belongs to a "
            f"{type(module).__name__}"
        )
    set_by_hooks = {id(value): value.detach() for value in vars(module).values() if isinstance(value, Tensor)}
    module = deepcopy(module, set_by_hooks).double().requires_grad_(False).eval()  # non-leaf tensors cannot be copied
    device = next(module.parameters()).device
    if isinstance(module, AnyConv) and (len(size) != module.weight.dim() - 1 or min(size) < 1):
        wanted = f"channels first, then {module.weight.dim() - 2} sizes above 0"
        raise ValueError(f"layer {shown(weight.name)!r} does not take inputs of size {size}: it needs {wanted}")
    zero = torch.zeros((1, *size), dtype=torch.float64, device=device)
    try:
        offset = module(zero)
    except RuntimeError as error:
        raise ValueError(f"layer {shown(weight.name)!r} does not take inputs of size {size}: {error}") from error
    output_shape = offset.shape[1:]

    def linear(x: Tensor) -> Tensor:
        return module(x) - offset

    def apply(rows: Tensor) -> Tensor:
        return linear(rows.to(device).reshape(-1, *size)).flatten(1).cpu()

    def adjoint(rows: Tensor) -> Tensor:
        zeros = zero.expand(len(rows), *size)
        _, vjp, *_ = torch.func.vjp(linear, zeros)
        return vjp(rows.to(device).reshape(-1, *output_shape))[0].flatten(1).cpu()

    return apply, adjoint, output_shape.numel()


class LayerInputs:
    """The inputs that one layer gets in a forward pass.

    Args:
        forward: the forward pass.
        name: the layer's qualified name, or another of its names.
    """

    def __init__(self, forward: ForwardPass, name: str) -> None:
        layer = next((layer for layer in forward.layers if layer.name == name), None)
        layer = layer or next((layer for layer in forward.layers if name in (*layer.names, _weight_name(layer))), None)
        if layer is None:
            known = ", ".join(shown(layer.name) for layer in forward.layers)
            raise ValueError(f"no layer {shown(name)!r} runs on these inputs; the layers that do are: {known}")
        self.layer: Layer = layer
        self.operation = forward.operation(layer)
        self.x = forward.value(layer.op.source)
        """The input of the layer's weighted operation, (N, …)."""
        self.d = forward.value(layer.d)
        """The layer's d_m, (N, …): its input before pooling, padding and reshaping."""
        padding = layer.own_padding or _conv_padding(layer)
        self.whole = self.x if padding is None else forward.value(padding.source)
        """The input of the layer's module, (N, …): ``x`` before the padding that the module itself applies."""

    @property
    def picture(self) -> tuple[int, ...] | None:
        """(C, H, W) if the layer's inputs are whole pictures, flattened or not; else None."""
        only_reshaped = all(
            op.role in (Role.PASS, Role.AFFINE) or op.rule.apply is reshape for op in self.layer.approach
        )
        shape = tuple(self.d.shape[1:])
        if not only_reshaped or self.d.shape[1:].numel() != self.x.shape[1:].numel() or len(shape) not in (2, 3):
            return None
        return shape if len(shape) == 3 else (1, *shape)

    def carried(self, vectors: Tensor, whole: bool) -> Tensor:
        """The share of the energy Σ‖x‖² of the layer's inputs that lies along each vector, (k,).

        Args:
            vectors: (k, n), orthonormal.
            whole: whether a vector is a whole input of the layer, not a kernel or the channels at one position.
        """
        x, module = (self.whole if whole else self.x).double(), self.operation.module
        vectors = vectors.to(x)
        if self.layer.kind in ("conv1d", "conv2d", "conv3d") and not whole:
            share = self._patches(x, vectors)
        else:
            rows = x.flatten(1) if whole else _rows(x, module, vectors.shape[1])
            share = _share((rows @ vectors.mT).square().sum(0), rows.square().sum())
        return share.cpu()

    def _patches(self, x: Tensor, vectors: Tensor) -> Tensor:
        """``carried`` for a convolution, over all patches: convolving with v as the kernel gives patch · v."""
        op, shape = self.operation, self.operation.get(1, "weight").shape[1:]
        groups = op.get(6, "groups", 1)
        options = (op.get(3, "stride", 1), op.get(4, "padding", 0), op.get(5, "dilation", 1), groups)
        kernels = vectors.reshape(-1, *shape)
        conv, bank = _CONV[len(shape) - 1], kernels.repeat(groups, *(1,) * len(shape))
        energy, total = torch.zeros(len(kernels), dtype=x.dtype, device=x.device), x.new_zeros(())
        for part in x.split(16):
            response = conv(part, bank, None, *options).square().transpose(0, 1).flatten(1).sum(1)
            energy += response.unflatten(0, (groups, len(kernels))).sum(0)
            total += conv(part.square(), torch.ones_like(bank[:: len(kernels)]), None, *options).sum()
        return _share(energy, total)

    @property
    def matrix(self) -> Tensor | None:
        """The matrix M (outputs, n) as the call used it, transposed or not; None if the operation is neither a
        convolution nor a matrix product."""
        op, kind = self.operation, self.layer.kind
        matrix: Tensor | None = None
        if kind in ("conv1d", "conv2d", "conv3d"):
            matrix = op.get(1, "weight").flatten(1)
        elif kind == "linear" and op.func is torch.nn.functional.linear:
            matrix = op.get(1, "weight")
        elif kind == "linear" and op.func in (torch.addmm, Tensor.addmm):
            matrix = op.get(2, "mat2").mT
        elif kind == "linear":
            matrix = op.get(1, "other").mT if op.at[0] in ((0,), ("input",)) else op.get(0, "input")
        return None if matrix is None else matrix.detach().to("cpu", torch.float64)


def _conv_padding(layer: Layer) -> Op | None:
    """The padding in the ``forward`` of a convolution module that is not torch's, as "same" padding with strides."""
    owner = layer.op.owner
    if owner is None or not isinstance(owner.module, AnyConv) or type(owner.module).__module__.startswith("torch.nn."):
        return None
    return layer.approach[0] if layer.approach and layer.approach[0].kind == "pad" else None


def _share(energy: Tensor, total: Tensor) -> Tensor:
    return energy / total if total > 0 else torch.zeros_like(energy)


def _weight_name(layer: Layer) -> str:
    """Qualified name of the layer's weight, as "attn.in_proj_weight"."""
    owner = layer.op.owner
    return "" if owner is None else f"{owner.name}.{owner.attribute}".lstrip(".")


def _rows(x: Tensor, module: nn.Module | None, n: int) -> Tensor:
    """Input vectors of a layer as rows (…, n): the channels at each position for a transposed convolution, the features
    for a linear layer."""
    if isinstance(module, AnyConvTranspose):
        x = x.movedim(1, -1)
    return x.reshape(-1, n)
