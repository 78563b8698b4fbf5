"""Which calls of a forward pass can matter to a plan, judged while torch.compile traces as well.

Plain loops that compare tensors by identity: the compiler steps through them.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from racecar.watch.calls import Call, among, outputs, tensors


def may_use_data(calls: Sequence[Call]) -> list[bool]:
    """For each call whether it may use data: not if it sees only parameters, new tensors and what was made of these."""
    flags: list[bool] = []
    constants: list[Tensor] = []
    for call in calls:
        # The first argument nearly always is data: torch.compile need not trace its way through the others.
        first = call.args[0] if call.args else None
        flag = isinstance(first, Tensor) and not isinstance(first, nn.Parameter)
        if not flag or (constants and among(first, constants)):
            flag = _uses_data(call, constants)
            if not flag:
                constants += outputs(call)
        flags.append(flag)
    return flags


def _uses_data(call: Call, constants: Sequence[Tensor]) -> bool:
    for _, tensor in tensors(call.args, call.kwargs):
        if not isinstance(tensor, nn.Parameter) and not among(tensor, constants):
            return True
    return False


def leads_to_numbers(calls: Sequence[Call]) -> list[bool]:
    """For each call whether it leads to floating-point numbers: not if it asks, for one, whether a mask leaves anything
    out, which a model may ask only where it is not compiled."""
    flags: list[bool] = []
    used: list[Tensor] = []
    for call in reversed(calls):
        flag = makes_number(call)
        if not flag:
            for out in outputs(call):
                flag = flag or among(out, used)
        flags.append(flag)
        if flag:
            used += [one for _, one in tensors(call.args, call.kwargs) if not _is_number(one)]
    return flags[::-1]


def makes_number(call: Call) -> bool:
    """Whether at least one output of a recorded call is a tensor of a floating-point dtype."""
    if isinstance(call.out, Tensor):
        return _is_number(call.out)
    return any(_is_number(out) for out in outputs(call))


def _is_number(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()
