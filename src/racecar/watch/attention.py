"""torch's multi-head attention, run so that its projections are seen."""

from __future__ import annotations

import types

from torch.nn import functional as F

ATTENTION = F.multi_head_attention_forward

# The function hands itself over to a function mode as a whole, unless it believes that there is none. A copy of it with
# that one question answered "no" runs the same code, bit for bit, and shows the mode all that it calls.
attention_in_parts = types.FunctionType(
    ATTENTION.__code__, {**ATTENTION.__globals__, "has_torch_function": lambda _: False}, ATTENTION.__name__
)
attention_in_parts.__defaults__, attention_in_parts.__kwdefaults__ = ATTENTION.__defaults__, ATTENTION.__kwdefaults__
