"""Which module made which calls of a forward pass."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from racecar.rules.registry import Rules, find
from racecar.support.torch_private import tensors_in
from racecar.watch.guards import refuse_reentrant
from racecar.watch.recorder import Watch


@dataclass(eq=False)
class Span:
    """The calls [start, end) that one call of a module made."""

    module: nn.Module
    start: int
    end: int
    outputs: tuple[Tensor, ...]


class ModuleWatch:
    """Notes, while it is entered, which module of a model makes which calls, by hooks that run for all modules of the
    process: the model itself gets none.

    Args:
        watch: records the calls.
        model: whose modules are told apart.
        rules: of modules that have one, ``spans`` has each call.
    """

    def __init__(self, watch: Watch, model: nn.Module, rules: Rules) -> None:
        self.watch, self.model = watch, model
        self.members = set(model.modules())
        rule_of = {module: find(type(module), rules) for module in self.members}
        self.ruled = {module: rule for module, rule in rule_of.items() if rule is not None}
        """The modules that have a rule of their own."""
        self.spans: list[Span] = []
        """The calls of these."""
        self.elsewhere: set[nn.Module] = set()
        """Modules that ran in another thread, where no call is seen."""
        self._thread = threading.get_ident()
        self._open: list[tuple[nn.Module, int]] = []
        """The modules whose forward runs now, from the outside in, each with the number of calls before it."""
        self._callers: list[nn.Module | None] = []
        """The innermost module of each call."""

    def __enter__(self) -> ModuleWatch:
        self._handles = (
            nn.modules.module.register_module_forward_pre_hook(self._enter),
            nn.modules.module.register_module_forward_hook(self._leave, always_call=True),
        )
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()
        self._fill()

    def caller(self, call: int) -> nn.Module | None:
        """The innermost module whose forward made a call."""
        return self._callers[call] if call < len(self._callers) else None

    def _fill(self) -> None:
        """Note the innermost module for the calls since the last time."""
        inner = self._open[-1][0] if self._open else None
        self._callers += [inner] * (len(self.watch.calls) - len(self._callers))

    def _enter(self, module: nn.Module, args: Any) -> None:
        if module in self.members and threading.get_ident() != self._thread:
            self.elsewhere.add(module)
        elif module in self.members:
            refuse_reentrant()
            self._fill()
            self._open.append((module, len(self.watch.calls)))

    def _leave(self, module: nn.Module, args: Any, out: Any) -> None:
        if self._open and self._open[-1][0] is module and threading.get_ident() == self._thread:
            self._fill()
            _, start = self._open.pop()
            if module in self.ruled:
                self.spans.append(Span(module, start, len(self.watch.calls), tuple(tensors_in(out))))
