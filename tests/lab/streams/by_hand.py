"""A slow and simple implementation, in plain torch for one net, of what ``StreamStack`` does for many."""

import torch
from torch.nn import functional as F

from racecar_lab.streams import Design

DENSE, CONVOLUTIONAL = Design(hidden=(5, 4)), Design(((3, 3, 1),), (4,))
SHAPES = {DENSE: (6,), CONVOLUTIONAL: (2, 4, 4)}
CLASSES, BATCH = 3, 4


def forward(parameters, x, method):
    """Logits, the inputs of all weighted operations, and the activations of all blocks."""
    blocks = sum(name.endswith("op.weight") for name in parameters)
    inputs, units = [], []
    for i in range(blocks):
        w, b = parameters[f"blocks.{i}.op.weight"], parameters[f"blocks.{i}.op.bias"]
        if w.dim() == 2:
            x = x.flatten(1)
        inputs.append(x)
        z = x @ w.T + b if w.dim() == 2 else F.conv2d(x, w, b, padding=1)
        if method.norm != "none":
            axes = tuple(range(1, z.dim())) if method.norm == "layer" else (0, *range(2, z.dim()))
            z = (z - z.mean(axes, True)) / (z.var(axes, unbiased=False, keepdim=True) + 1e-5).sqrt()
            each = (-1, *(1,) * (z.dim() - 2))
            gain, shift = (parameters[f"blocks.{i}.norm.{kind}"].view(each) for kind in ("weight", "bias"))
            z = gain * z + shift
        x = torch.cat([z.clamp(min=0), (-z).clamp(min=0)], 1) if method.activation == "crelu" else z.clamp(min=0)
        units.append(x)
        x = F.max_pool2d(x, 2) if w.dim() == 4 else x
    inputs.append(x.flatten(1))
    return inputs[-1] @ parameters["head.weight"].T + parameters["head.bias"], inputs, units


def matrix(weight, shape):
    """A layer's linear map as a matrix, (inputs, outputs): the layer's output for every unit vector."""
    basis = torch.eye(torch.Size(shape).numel(), dtype=weight.dtype)
    if weight.dim() == 2:
        return basis @ weight.T
    return F.conv2d(basis.reshape(-1, *shape), weight, padding=1).flatten(1)


def linear(parameters, inputs):
    """The penalty ``linear`` from each layer's matrix A: mean of ‖AᵀA h − h‖² / ‖h‖²."""
    terms = []
    for i, h in enumerate(inputs[:-1]):
        a = matrix(parameters[f"blocks.{i}.op.weight"], h.shape[1:])
        h = h.detach().flatten(1)
        terms.append(((h @ a @ a.T - h) ** 2).sum() / (h**2).sum())
    return sum(terms) / len(terms)


def penalty(method, parameters, start, inputs, vectors):
    """The method's penalty. ``vectors`` has the vector u of spectral regularisation by layer; it is updated."""
    op = {name: p for name, p in parameters.items() if ".norm." not in name}
    hidden = [p.flatten(1) for name, p in parameters.items() if name.endswith("op.weight")]
    match method.penalty:
        case "l2":
            return sum((p**2).sum() for p in op.values())
        case "l2-init":
            return sum(((p - start[name]) ** 2).sum() for name, p in op.items())
        case "orthogonality":
            smaller = [w if w.shape[0] <= w.shape[1] else w.T for w in hidden]
            return sum(((w @ w.T - torch.eye(len(w))) ** 2).sum() for w in smaller)
        case "parseval":
            return sum((64 / len(w)) ** 2 * ((w @ w.T - 2 * torch.eye(len(w))) ** 2).sum() for w in hidden)
        case "spectral" | "spectral-without-head":
            value = 0
            for name, p in parameters.items():
                if name.startswith("head") and method.penalty == "spectral-without-head":
                    continue
                if name.endswith("bias"):
                    value = value + (p**2).sum() ** 2
                elif ".norm." in name:
                    value = value + (p.abs().max() ** 2 - 1) ** 2
                else:
                    w, layer = p.flatten(1), name.removesuffix(".weight")
                    v = w.detach().T @ vectors[layer]
                    v = v / v.norm()
                    u = w.detach() @ v
                    vectors[layer] = u = u / u.norm()
                    value = value + ((u @ w @ v) ** 2 - 1) ** 2
            return value
        case "linear":
            return linear(parameters, inputs)


def reverse_loss(method, parameters, x):
    """The paper's reverse loss of a net with two fully connected layers; the head has no term."""
    w1, b1, w2, b2 = (parameters[f"blocks.{i}.op.{kind}"] for i in (0, 1) for kind in ("weight", "bias"))
    d2 = (x @ w1.T + b1).clamp(min=0)
    d3 = (d2 @ w2.T + b2).clamp(min=0)
    back2 = ((d3 - b2) @ w2).clamp(min=0)
    back1 = ((back2 if method.reverse == "full" else d2) - b1) @ w1
    return ((d2 - back2) ** 2).sum() + ((x - back1) ** 2).sum()


def renew(parameters, optimiser, block, unit, row):
    """Reinitialise a unit: its incoming weights become ``row``, its outgoing weights, bias and moments 0."""
    names = [*(name for name in parameters if name.endswith("op.weight")), "head.weight"]
    incoming, outgoing = names[block], names[block + 1]
    positions = parameters[outgoing].shape[1] // len(parameters[incoming])
    columns = slice(unit * positions, (unit + 1) * positions) if parameters[outgoing].dim() == 2 else unit
    with torch.no_grad():
        parameters[incoming][unit] = row
        parameters[outgoing][:, columns] = 0
        for kind, value in (("op.bias", 0), ("norm.weight", 1), ("norm.bias", 0)):
            if (name := f"blocks.{block}.{kind}") in parameters:
                parameters[name][unit] = value
    for name, at in ((incoming, unit), (f"blocks.{block}.op.bias", unit), (outgoing, (slice(None), columns))):
        state = optimiser.state.get(parameters[name], {})
        for kind in ("exp_avg", "exp_avg_sq", "weight_steps"):
            if kind in state:
                state[kind][at] = 0


def mean_activity(units):
    """Mean of |h| of every unit over the batch and all positions."""
    return units.detach().abs().mean([i for i in range(units.dim()) if i != 1])
