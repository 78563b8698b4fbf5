"""Operations that no rule takes back, most of them on several tensors: what else is known of them."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from racecar.rules.linear import of_product
from racecar.rules.marks import OnMask, along_last, by_element, in_place, mixed, together
from racecar.rules.registry import register_plain
from racecar.rules.roles import Role
from racecar.rules.torch_functions import RECURRENT, forms

_OF_ELEMENTS = (
    "addcdiv bitwise_and bitwise_not bitwise_or eq ge gt hypot isfinite isinf isnan le lerp logical_and "
    "logical_not logical_or lt masked_fill ne where __and__ __invert__ __or__"
)


def _by_letters(one: OnMask) -> Tensor | None:
    """Dimensions of an einsum are followed by their letters."""
    equation = one.operation.args[0]
    equation = equation.replace(" ", "") if isinstance(equation, str) else ""
    if "->" not in equation or "." in equation:
        return None
    before, after = equation.split("->")
    marks: list[Tensor | None] = []
    for path, mark in zip(one.paths, one.marks, strict=True):
        if mark is not None:
            letters = before.split(",")[int(path[-1]) - (len(path) == 1)]
            if len(set(letters)) < len(letters):
                return None
            gone = [d for d, letter in enumerate(letters) if letter not in after]
            kept = [letter for letter in letters if letter in after]
            order = sorted(range(len(kept)), key=lambda i: after.index(kept[i]))
            left = (mixed(mark, gone).squeeze(gone) if gone else mark).permute(order)
            sizes = dict(zip((kept[i] for i in order), left.shape, strict=True))
            marks.append(left.reshape([sizes.get(letter, 1) for letter in after]))
    return together(marks)


# They gate one half of a tensor by the other, or add and gate projections.
register_plain(Role.JOIN, *forms("glu"), mask=in_place)
register_plain(Role.JOIN, *RECURRENT)
register_plain(Role.UNKNOWN, *forms(_OF_ELEMENTS), mask=by_element, elementwise=True)
register_plain(Role.UNKNOWN, *forms("var std norm logsumexp"), reduction=True)
# What an attention makes has the positions of its query.
register_plain(Role.UNKNOWN, F.scaled_dot_product_attention, mask=along_last, leads=((0,), ("query",)))
register_plain(Role.UNKNOWN, *forms("bmm"), mask=of_product)
_FACTORS = ((1,), ("batch1",), (2,), ("batch2",))
register_plain(Role.UNKNOWN, *forms("baddbmm"), mask=partial(of_product, left=_FACTORS[:2]), leads=_FACTORS)
register_plain(Role.UNKNOWN, torch.einsum, mask=_by_letters)
