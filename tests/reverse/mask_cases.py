"""Batches with padding, and what two steps have in common."""

from typing import Any

import torch
from torch import Tensor, nn

from racecar import Racecar
from tests.by_hand import close, lively

REAL, LONG = 3, 7
"""Tokens of a sample, and with its padding."""
X = torch.randn(4, LONG, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def step(rr: Racecar, *args: Any, **kwargs: Any) -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor | None]]:
    """The loss, the terms and the gradient of every parameter."""
    rr.zero_grad()
    _, loss = rr(*args, **kwargs)
    loss.backward()
    return loss.detach(), rr.terms, {name: one.grad for name, one in rr.model.named_parameters()}


def real(samples: int = 4, length: int = LONG, tokens: int = REAL) -> Tensor:
    """True for the first tokens of every sample."""
    return (torch.arange(length) < tokens).expand(samples, length).clone()


LENGTHS = torch.tensor([5, 1, 7, 3])
UNEQUAL = torch.arange(LONG) < LENGTHS[:, None]


def same(ours: Any, theirs: Any) -> None:
    (loss, terms, grads), (other_loss, other_terms, other_grads) = ours, theirs
    close(loss, other_loss)
    close(terms, other_terms)
    assert grads.keys() == other_grads.keys()
    assert any(one is not None and one.abs().max() > 1e-6 for one in grads.values())
    for name, one in grads.items():
        if other_grads[name] is None:
            assert one is None or not one.any(), name
        else:
            torch.testing.assert_close(one, other_grads[name], rtol=1e-7, atol=1e-9, msg=name)


SETTINGS = [
    {"mode": "auto", "scale": "relative", "gradient": "both", "reduction": "sum", "weight": 1.0},
    {"mode": "layerwise", "scale": "mean", "gradient": "reverse", "reduction": "mean", "weight": 1.0},
    {"mode": "layerwise", "scale": "sum", "gradient": "both", "reduction": "sum", "weight": 1.0, "fraction": 0.5},
    {"mode": "auto", "scale": "ratio", "gradient": "reverse", "reduction": "mean", "weight": 1.0, "fraction": 0.75},
    {"mode": "layerwise", "scale": "relative", "gradient": "weights", "reduction": "mean", "weight": 1.0},
]


def encoder(batch_first: bool) -> nn.Module:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=batch_first)
    return lively(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).double())
