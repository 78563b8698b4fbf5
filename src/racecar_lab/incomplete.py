"""The parts that every experiment must define, and the error for one that is missing."""

from __future__ import annotations

PARTS = {
    "name": "give the class name = '…', by which its records are known",
    "data": "define data(config, seed, folder), which returns a dict from the name of a task, as 'A', to its Task",
    "network": "define network(config, dropout=0.0), which returns the untrained torch.nn.Module",
    "weight": "define weight(config, variant), which returns what that variant's regulariser is multiplied "
    "by, a number of at least 0",
}


class Incomplete(TypeError):
    """The error that an experiment lacks a part, such as its data, which a run or its page needs."""


def lacks(kind: type, part: str) -> Incomplete:
    """The error for a class without a part; it says how to define the part."""
    return Incomplete(f"experiment {kind.__name__} has no {part}: {PARTS[part]}")
