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
    """While planning: which module made which calls. Hooks are global and gone afterwards; the model has none."""

    def __init__(self, watch: Watch, model: nn.Module, rules: Rules) -> None:
        self.watch, self.model = watch, model
        self.members = set(model.modules())
        found = {module: find(type(module), rules) for module in self.members}
        self.ruled = {module: rule for module, rule in found.items() if rule is not None}
        self.spans: list[Span] = []
        self.elsewhere: set[nn.Module] = set()
        """Modules that ran in another thread, where no call is seen."""
        self._thread = threading.get_ident()
        self._open: list[tuple[nn.Module, int]] = []
        self.callers: list[nn.Module | None] = []

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
        return self.callers[call] if call < len(self.callers) else None

    def _fill(self) -> None:
        inner = self._open[-1][0] if self._open else None
        self.callers += [inner] * (len(self.watch.calls) - len(self.callers))

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
            if module not in self.ruled:
                return
            made = tuple(tensors_in(out))
            self.spans.append(Span(module, start, len(self.watch.calls), made))
