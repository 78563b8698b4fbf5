"""A network that also runs backwards in its ordinary training calls, for loops that nobody can change."""

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
"""Samples that are kept to look at."""
PATIENCE = 100
"""Losses that may wait to be asked for."""
_known: WeakKeyDictionary[nn.Module, ReferenceType[Attached]] = WeakKeyDictionary()
"""Who is attached to what. Neither is kept alive by it."""


class Attached:
    """Keep the racecar loss of a network's own calls aside, until it is asked for.

        attached = Attached(model, weight=0.01)
        output = model(x)
        (task_loss(output, y) + attached.loss()).backward()

    Calls in training mode and with gradients give what they gave before, and their loss waits; all others are left
    alone. The first one is planned with its own arguments. The network has no new parameter, buffer or name, so that
    its state dict is as ever; a copy of it, or one from a file, is a plain network. Where calls can be changed,
    ``Racecar`` itself is simpler, and can be compiled.

    Args:
        network: what is called.
        every: the reverse pass in every k-th call alone, with k times the weight.
        settings: as ``Racecar`` takes them: weight, mode, fraction, …
    """

    def __init__(self, network: nn.Module, *, every: int = 1, **settings: Any) -> None:
        if _attached_to(network) is not None:
            raise ValueError(
                f"{type(network).__name__} has a racecar loss already: call detach() of its Attached first, or let the "
                "training that attached it end"
            )
        self.network, self.settings, self._every = network, settings, check_every(every)
        self.on = True
        """Set to False, calls are plain ones: for a second phase of training."""
        self.calls = 0
        """In training so far, those that ``every`` leaves out among them."""
        self.rr: Racecar | None = None
        """From the first training call on."""
        self.seen: Tensor | None = None
        """The first samples of the last training call's first argument, where that is a tensor."""
        self._losses: list[Tensor] = []
        self._inside = False
        self._plain, self._instead = vars(type(network)).get("_plain", type(network)), vars(network).get("forward")
        _known[network] = ref(self)
        self._class = network.__class__ = _subclass(self._plain)
        if (instead := self._instead) is not None:  # somebody has put another forward in its place: that one is called
            self._forward = functools.wraps(instead)(lambda *args, **kwargs: self.call(instead, args, kwargs))
            network.forward = self._forward

    @property
    def active(self) -> bool:
        """True until ``detach``."""
        return _attached_to(self.network) is self

    def loss(self) -> Tensor:
        """Mean racecar loss of the calls since it was last asked for; 0 without any."""
        losses, self._losses = self._losses, []
        if losses:
            return torch.stack(losses).mean()
        return torch.zeros((), device=next((p.device for p in self.network.parameters()), None))

    def detach(self) -> None:
        """The network is a plain one again. Losses that wait are forgotten.

        A class or forward that somebody put over ours meanwhile, as ``fully_shard`` and Accelerate do, stays.
        """
        if self.active:
            del _known[self.network]
            if type(self.network) is self._class:
                self.network.__class__ = self._plain
            if self._instead is not None and vars(self.network).get("forward") is self._forward:
                self.network.forward = self._instead
        self._losses = []

    def call(self, forward: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """What a call of the network does in place of its forward."""
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
            with _alone(self.network, forward):
                output, loss = self._racecar(forward, args, kwargs)(*args, **kwargs)
        finally:
            self._inside = False
        self._losses.append(loss)
        self.seen = args[0][:SEEN].detach() if args and isinstance(args[0], Tensor) and args[0].dim() else None
        return output

    def _racecar(self, forward: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Racecar:
        """Planned in the first call."""
        if self.rr is None:
            example = inspect.signature(forward).bind(*args, **kwargs).arguments if kwargs else tuple(args)
            self.rr = Racecar(self.network, example, **self.settings)
        self.rr.training = True
        self.rr.schedule(self._every, self.calls % self._every == 0)
        self.calls += 1
        return self.rr


def _attached_to(network: nn.Module) -> Attached | None:
    found = _known.get(network)
    return None if found is None else found()


def _subclass(plain: type[nn.Module]) -> type[nn.Module]:
    """The class of attached networks. Copies, and files, have the plain one."""

    @functools.wraps(plain.forward)
    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        own, attached = functools.partial(plain.forward, self), _attached_to(self)
        return own(*args, **kwargs) if attached is None else attached.call(own, args, kwargs)

    def reduce(self: nn.Module, protocol: Any) -> Any:
        reduced: Any = plain.__reduce_ex__(self, protocol)
        return _new, (plain,), *reduced[2:]

    names = {name: getattr(plain, name) for name in ("__module__", "__qualname__", "__doc__")}
    return type(plain.__name__, (plain,), {**names, "_plain": plain, "forward": forward, "__reduce_ex__": reduce})


def _new(plain: type[nn.Module]) -> nn.Module:
    return plain.__new__(plain)


@contextmanager
def _alone(network: nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """Calls of the network run this forward, without hooks and without what others put over the forward meanwhile, such
    as Accelerate's autocast: all of that runs around this call already, and an autocast entered twice is never left."""
    own = network.__dict__
    before = {name: own[name] for name in (*HOOK_TABLES, "forward") if name in own}
    try:
        own.update({name: type(before[name])() for name in HOOK_TABLES}, forward=forward)
        yield
    finally:
        del own["forward"]
        own.update(before)
