"""Operations that no rule can undo, most of them on several tensors: their effect on batch and mask."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from racecar.rules.linear import product_mask
from racecar.rules.mask_rules import MaskedOperation, along_last, any_along, by_element, in_place, intersection
from racecar.rules.registry import register_plain
from racecar.rules.roles import Role
from racecar.rules.torch_functions import RECURRENT, forms

_ELEMENTWISE = (
    "addcdiv bitwise_and bitwise_not bitwise_or eq ge gt hypot isfinite isinf isnan le lerp logical_and "
    "logical_not logical_or lt masked_fill ne where __and__ __invert__ __or__"
)


def _einsum_mask(call: MaskedOperation) -> Tensor | None:
    """Mask rule of ``torch.einsum``: the letters of the equation say where each dimension goes."""
    equation = call.operation.args[0]
    equation = equation.replace(" ", "") if isinstance(equation, str) else ""
    if "->" not in equation or "." in equation:
        return None
    before, after = equation.split("->")
    masks: list[Tensor | None] = []
    for path, mask in zip(call.paths, call.masks, strict=True):
        if mask is not None:
            letters = before.split(",")[int(path[-1]) - (len(path) == 1)]
            if len(set(letters)) < len(letters):
                return None
            summed = [d for d, letter in enumerate(letters) if letter not in after]
            kept = [letter for letter in letters if letter in after]
            order = sorted(range(len(kept)), key=lambda i: after.index(kept[i]))
            rest = (any_along(mask, summed).squeeze(summed) if summed else mask).permute(order)
            sizes = dict(zip((kept[i] for i in order), rest.shape, strict=True))
            masks.append(rest.reshape([sizes.get(letter, 1) for letter in after]))
    return intersection(masks)


# A GLU multiplies two halves of a tensor; recurrent cells add and multiply projections.
register_plain(Role.JOIN, *forms("glu"), mask=in_place)
register_plain(Role.JOIN, *RECURRENT)
register_plain(Role.UNKNOWN, *forms(_ELEMENTWISE), mask=by_element, elementwise=True)
register_plain(Role.UNKNOWN, *forms("var std norm logsumexp"), reduction=True)
# The output of an attention has the positions of its query.
register_plain(Role.UNKNOWN, F.scaled_dot_product_attention, mask=along_last, positions_from=((0,), ("query",)))
register_plain(Role.UNKNOWN, *forms("bmm"), mask=product_mask)
_FACTORS = ((1,), ("batch1",), (2,), ("batch2",))  # of baddbmm, whose first argument is added to the product
register_plain(Role.UNKNOWN, *forms("baddbmm"), mask=partial(product_mask, left=_FACTORS[:2]), positions_from=_FACTORS)
register_plain(Role.UNKNOWN, torch.einsum, mask=_einsum_mask)
