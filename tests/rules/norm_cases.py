"""Normalisations written by hand, and norms that are not fresh."""

from torch import nn


def standard(x, dims, eps=1e-5):
    """Mean 0 and variance 1 over `dims`."""
    mean = x.mean(dims, keepdim=True)
    return (x - mean) / ((x - mean).square().mean(dims, keepdim=True) + eps).sqrt()


def affine(norm, x, dim=1):
    """The norm's scale and shift, along one dimension."""
    view = [-1 if d == dim % x.dim() else 1 for d in range(x.dim())]
    if getattr(norm, "weight", None) is not None:
        x = x * norm.weight.view(view)
    if getattr(norm, "bias", None) is not None:
        x = x + norm.bias.view(view)
    return x


def shake(module):
    """Parameters and running statistics that are not those of a fresh model."""
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if tensor.is_floating_point():
            nn.init.uniform_(tensor, 0.5, 1.5) if "weight" in name or "var" in name else nn.init.uniform_(tensor)
    return module.double()


def batch(norm, x):
    return affine(norm, standard(x, [0, *range(2, x.dim())], norm.eps))


def running(norm, x):
    view = (-1, *(1,) * (x.dim() - 2))
    return affine(norm, (x - norm.running_mean.view(view)) / (norm.running_var.view(view) + norm.eps).sqrt())
