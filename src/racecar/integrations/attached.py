"""Add the racecar loss to a network whose training loop, as a Trainer's, cannot be changed."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import ReferenceType, WeakKeyDictionary, ref

import torch
from torch import Tensor, nn

from racecar.every import check_every
from racecar.racecar import Racecar
from racecar.support.compiling import compiling
from racecar.support.torch_private import HOOK_TABLES

SEEN = 8
"""Number of samples of the last batch that are kept, so that a callback can draw what the reverse pass rebuilds."""
PATIENCE = 100
"""Most losses that are collected before ``loss()`` must be called."""
_known: WeakKeyDictionary[nn.Module, ReferenceType[Attached]] = WeakKeyDictionary()
"""Network → the Attached on it; weak references, which keep neither alive."""


class Attached:
    """Makes every training call of a network compute its racecar loss, too, and collects the losses until ``loss()``.

        attached = Attached(model, weight=0.01)
        output = model(x)
        (task_loss(output, y) + attached.loss()).backward()

    A call returns the same output as before. Only calls in training mode and with gradients compute the loss; the first
    of them also makes the plan. The network gets no new parameter, buffer or name, so its state dict stays the same; a
    copied or unpickled network has no racecar loss. If you can change the calls, use ``Racecar`` itself: it is simpler,
    and can be compiled.

    Args:
        network: the network that the training loop calls.
        every: run the reverse pass in every k-th call only, with k times the weight.
        settings: keyword arguments of ``Racecar``: weight, mode, fraction, …
    """

    def __init__(self, network: nn.Module, *, every: int = 1, **settings: Any) -> None:
        if _attached_to(network) is not None:
            raise ValueError(
                f"{type(network).__name__} has a racecar loss already: call detach() of its Attached first, or let the "
                "training that attached it end"
            )
        self.network, self.settings, self._every = network, settings, check_every(every)
        self.on = True
        """False: calls compute no racecar loss, for a second phase of training without it."""
        self.calls = 0
        """Number of training calls so far, with those that ``every`` skips."""
        self.rr: Racecar | None = None
        """The Racecar that runs the reverse pass; None before the first training call."""
        self.seen: Tensor | None = None
        """The first samples of the last training call's first argument, (≤ 8, …); None if that is no tensor."""
        self._losses: list[Tensor] = []
        self._inside = False
        self._plain, self._instead = vars(type(network)).get("_plain", type(network)), vars(network).get("forward")
        _known[network] = ref(self)
        self._class = network.__class__ = _subclass(self._plain)
        if (instead := self._instead) is not None:  # another library replaced the forward: that one is called
            self._forward = functools.wraps(instead)(lambda *args, **kwargs: self.call(instead, args, kwargs))
            network.forward = self._forward

    @property
    def active(self) -> bool:
        """Whether the racecar loss is attached: True until ``detach``."""
        return _attached_to(self.network) is self

    def loss(self) -> Tensor:
        """The mean racecar loss, a scalar, of the training calls since the last ``loss()``; 0 if there were none."""
        losses, self._losses = self._losses, []
        if losses:
            return torch.stack(losses).mean()
        return torch.zeros((), device=next((p.device for p in self.network.parameters()), None))

    def detach(self) -> None:
        """Make the network a plain one again, and drop the losses that were not asked for.

        If another library has replaced the network's class or forward since, as ``fully_shard`` and Accelerate do, that
        replacement stays.
        """
        if self.active:
            del _known[self.network]
            if type(self.network) is self._class:
                self.network.__class__ = self._plain
            if self._instead is not None and vars(self.network).get("forward") is self._forward:
                self.network.forward = self._instead
        self._losses = []

    def call(self, forward: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run in place of the network's ``forward``: return the same output, and collect the racecar loss."""
        if self._inside or not (self.active and self.on and self.network.training and torch.is_grad_enabled()):
            return forward(*args, **kwargs)
        if compiling():
            raise RuntimeError(
                "a network with an attached racecar loss cannot be compiled: make a Racecar of it, and compile that"
            )
        if len(self._losses) == PATIENCE:
            raise RuntimeError(f"{PATIENCE} racecar losses wait, and nobody takes them: add attached.loss() to yours")
        self._inside = True
        try:
            with _only_forward(self.network, forward):
                output, loss = self._racecar(forward, args, kwargs)(*args, **kwargs)
        finally:
            self._inside = False
        self._losses.append(loss)
        self.seen = args[0][:SEEN].detach() if args and isinstance(args[0], Tensor) and args[0].dim() else None
        return output

    def _racecar(self, forward: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Racecar:
        """The Racecar for the next call, made in the first one from its arguments."""
        if self.rr is None:
            example = inspect.signature(forward).bind(*args, **kwargs).arguments if kwargs else tuple(args)
            self.rr = Racecar(self.network, example, **self.settings)
        self.rr.training = True
        self.rr.schedule(self._every, self.calls % self._every == 0)
        self.calls += 1
        return self.rr


def _attached_to(network: nn.Module) -> Attached | None:
    reference = _known.get(network)
    return None if reference is None else reference()


def _subclass(plain: type[nn.Module]) -> type[nn.Module]:
    """A subclass of a network's class whose ``forward`` calls the Attached; copies and pickles have the plain class."""

    @functools.wraps(plain.forward)
    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        plain_forward, attached = functools.partial(plain.forward, self), _attached_to(self)
        return plain_forward(*args, **kwargs) if attached is None else attached.call(plain_forward, args, kwargs)

    def reduce(self: nn.Module, protocol: Any) -> Any:
        reduced: Any = plain.__reduce_ex__(self, protocol)
        return _new, (plain,), *reduced[2:]

    names = {name: getattr(plain, name) for name in ("__module__", "__qualname__", "__doc__")}
    return type(plain.__name__, (plain,), {**names, "_plain": plain, "forward": forward, "__reduce_ex__": reduce})


def _new(plain: type[nn.Module]) -> nn.Module:
    """An instance of the plain class without ``__init__``, for unpickling."""
    return plain.__new__(plain)


@contextmanager
def _only_forward(network: nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """A context in which calls of the network run ``forward`` alone, without hooks and without wrappers that others put
    around it, such as Accelerate's autocast: these run around this call already, and an autocast entered twice is never
    left."""
    attributes = network.__dict__
    before = {name: attributes[name] for name in (*HOOK_TABLES, "forward") if name in attributes}
    try:
        attributes.update({name: type(before[name])() for name in HOOK_TABLES}, forward=forward)
        yield
    finally:
        del attributes["forward"]
        attributes.update(before)
