"""Running statistics of what batch norms see in the reverse pass.

A batch norm's own running statistics are those of forward data; applied again in the reverse pass it sees other data.
These are kept beside the model, for every place where the reverse pass applies a batch norm: a norm that several layers
read is applied once for each, to other data every time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

import torch
from torch import Tensor, nn

from racecar.plan.norms import Norm
from racecar.rules.context import BatchStatistics, RunningStatistics
from racecar.support.compiling import compiling
from racecar.support.torch_private import in_transform, variances


class StatisticsBlock(nn.Module):
    """The statistics of some places, one after the other in flat tensors: a step then takes few small kernels."""

    mean: Tensor
    var: Tensor
    count: Tensor
    momentum: Tensor
    owner: Tensor

    def __init__(self, norms: Mapping[str, Norm]) -> None:
        super().__init__()
        self.keys, self.sizes = tuple(norms), [norm.channels for norm in norms.values()]
        self.momenta = [norm.momentum for norm in norms.values()]
        self.starts = [sum(self.sizes[:i]) for i in range(len(self.sizes))]
        first, total = next(iter(norms.values())), sum(self.sizes)
        with torch.inference_mode(False):
            made = {
                "mean": torch.zeros(total, dtype=first.dtype),
                "var": torch.ones(total, dtype=first.dtype),
                "count": torch.zeros(len(norms), dtype=torch.int64),
                "momentum": torch.tensor(self.momenta, dtype=first.dtype),
                "owner": torch.arange(len(norms)).repeat_interleave(torch.tensor(self.sizes)),
            }
            for name, tensor in made.items():
                self.register_buffer(name, tensor.to(first.device), persistent=False)

    def part(self, i: int) -> tuple[Tensor, Tensor]:
        """Mean and variance of place i."""
        start, size = self.starts[i], self.sizes[i]
        return self.mean.narrow(0, start, size), self.var.narrow(0, start, size)

    def after(self, seen: Mapping[str, BatchStatistics]) -> tuple[Tensor, Tensor, Tensor]:
        """Mean, variance and count once what was seen is taken in; nothing is changed yet."""
        means, variances = [], []
        new = [seen[key] for key in self.keys if key in seen]
        found = dict(zip((key for key in self.keys if key in seen), unbiased(new), strict=True))
        for i, key in enumerate(self.keys):
            mean, var = (seen[key].mean.flatten(), found[key].flatten()) if key in seen else self.part(i)
            means.append(mean)
            variances.append(var)
        count = self.count + self._steps(seen)
        factor = torch.maximum(self.momentum, count.clamp(min=1).to(self.momentum.dtype).reciprocal())[self.owner]
        dtype = self.mean.dtype
        return (
            self.mean.lerp(torch.cat(means).to(dtype), factor),
            self.var.lerp(torch.cat(variances).to(dtype), factor),
            count,
        )

    def _steps(self, seen: Mapping[str, BatchStatistics]) -> Tensor | int:
        """What is added to the counts: 1 for each place that was seen."""
        if all(key in seen for key in self.keys):
            return 1
        runs = groupby(key in seen for key in self.keys)
        return torch.cat([self.count.new_full((len(list(run)),), int(new)) for new, run in runs])

    def use(self, made: tuple[Tensor, Tensor, Tensor]) -> None:
        """From now on these."""
        for old, new in zip((self.mean, self.var, self.count), made, strict=True):
            old.copy_(new)


def unbiased(seen: Sequence[BatchStatistics]) -> list[Tensor]:
    """Σ (x − mean)² / (n − 1) of each channel, from 1/σ."""
    if not seen:
        return []
    eps, sizes = [one.eps for one in seen], [one.size for one in seen]
    spread = [n / (n - 1).clamp(min=1) if isinstance(n, Tensor) else n / (n - 1) for n in sizes]
    inverse = [one.inverse for one in seen]
    if compiling() or in_transform(inverse[0]) or any(isinstance(one, Tensor) for one in spread):
        return [
            (x.square().reciprocal() - e).clamp(min=0) * s for x, e, s in zip(inverse, eps, spread, strict=True)
        ]  # fmt: skip
    return variances(inverse, eps, spread)


class ReverseStatistics(nn.Module):
    """Running mean and variance of the reverse data at every batch norm that the reverse pass applies again.

    Call n moves them by the norm's momentum, or by 1/n where that is more: they start as the plain average, and stay it
    for momentum None. Variances are unbiased, as in torch. They move with ``.to()`` and are copied with the module, but
    are in no ``state_dict``: save them with :meth:`export`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList()
        self._places: dict[str, tuple[int, int]] = {}
        self._sizes: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._places)

    def __bool__(self) -> bool:
        return True

    @property
    def keys(self) -> list[str]:
        """ "layer:i" for operation i among those that the reverse pass applies again before the layer's input."""
        return list(self._places)

    @property
    def known(self) -> bool:
        """Whether any were seen; waits for the device."""
        return any(bool(block.count.any()) for block in self._blocks())

    def add(self, norms: Mapping[str, Norm]) -> None:
        """Make room for places that are new. What is there stays where it is, for graphs that were recorded."""
        for key, norm in norms.items():
            self._sizes.setdefault(key, norm.channels)
        named = {self._name(key, norm.channels): norm for key, norm in norms.items()}
        new = {key: norm for key, norm in named.items() if key not in self._places}
        for where in dict.fromkeys((norm.device, norm.dtype) for norm in new.values()):
            some = {key: norm for key, norm in new.items() if (norm.device, norm.dtype) == where}
            self._places.update((key, (len(self.blocks), i)) for i, key in enumerate(some))
            self.blocks.append(StatisticsBlock(some))

    def _name(self, key: str, channels: int) -> str:
        """Another way through the model may have a norm of other size at the same place."""
        return key if self._sizes.get(key, channels) == channels else f"{key}x{channels}"

    def _named(self, seen: Mapping[str, BatchStatistics]) -> dict[str, BatchStatistics]:
        return {self._name(key, one.mean.numel()): one for key, one in seen.items()}

    def find(self, key: str, channels: int) -> RunningStatistics | None:
        """Mean, variance and whether there are any yet, of one place."""
        name = self._name(key, channels)
        if name not in self._places:
            return None
        at, i = self._places[name]
        block = self._block(at)
        return (*block.part(i), block.count[i] > 0)

    def after(self, seen: Mapping[str, BatchStatistics]) -> list[Tensor]:
        """All statistics once what was seen is taken in, for :meth:`use`; nothing is changed yet."""
        if not seen:
            return []
        seen = self._named(seen)
        return [tensor for block in self._blocks() for tensor in block.after(seen)]

    def use(self, made: Sequence[Tensor]) -> None:
        """From now on these, of :meth:`after`."""
        for block, three in zip(self._blocks(), zip(*[iter(made)] * 3, strict=True), strict=False):
            block.use(three)

    def update(self, seen: Mapping[str, BatchStatistics]) -> None:
        """Take in what a call has seen; not what is a wrapper of torch.func, unless the statistics are, too."""
        if not seen:
            return
        seen = self._named(seen)
        first = next(iter(seen.values()))
        for block in self._blocks():
            if in_transform(first.mean) != in_transform(block.mean):
                return
            one = next((seen[key] for key in block.keys if key in seen), None)
            if one is None:
                continue
            if block.mean.device != one.mean.device:  # the model has moved
                block.to(one.mean.device)
            block.use(block.after(seen))

    def reset(self) -> None:
        """Forget all that was seen."""
        for block in self._blocks():
            block.use((torch.zeros_like(block.mean), torch.ones_like(block.var), torch.zeros_like(block.count)))

    def export(self) -> dict[str, Tensor]:
        """All of them by name, as copies: "key.mean" (C,), "key.var" (C,) and "key.count" (), for a file."""
        found: dict[str, Tensor] = {}
        for key, (at, i) in self._places.items():
            block = self._block(at)
            mean, var = block.part(i)
            found |= {f"{key}.mean": mean.clone(), f"{key}.var": var.clone(), f"{key}.count": block.count[i].clone()}
        return found

    def load(self, exported: Mapping[str, Tensor]) -> None:
        """Take over what :meth:`export` gave; a ValueError if it belongs to another model, or to other settings."""
        own = self.export()
        _refuse(set(exported) - set(own), "there is no place for")
        _refuse(set(own) - set(exported), "there is nothing for")
        for name, old in own.items():
            if exported[name].shape != old.shape:
                raise ValueError(
                    f"these reverse statistics do not fit: {name!r} has shape {tuple(exported[name].shape)}, "
                    f"not {tuple(old.shape)}"
                )
        self._copy(exported)

    def take(self, other: ReverseStatistics) -> None:
        """Those of another, which has no places but ours; what it has not, is forgotten."""
        self.reset()
        self._copy(other.export())

    def _copy(self, exported: Mapping[str, Tensor]) -> None:
        for key in self._places:
            if f"{key}.mean" in exported:
                at, i = self._places[key]
                block = self._block(at)
                for old, name in zip((*block.part(i), block.count[i]), ("mean", "var", "count"), strict=True):
                    old.copy_(exported[f"{key}.{name}"])

    @classmethod
    def restore(cls, exported: Mapping[str, Tensor]) -> ReverseStatistics:
        """Statistics of a calibration, as :meth:`export` gave them."""
        made, means = cls(), {name[:-5]: mean for name, mean in exported.items() if name.endswith(".mean")}
        made.add({key: Norm(len(mean), 0.0, mean.device, mean.dtype) for key, mean in means.items()})
        made.load(exported)
        return made

    def _blocks(self) -> Iterable[StatisticsBlock]:
        return self.blocks  # type: ignore[return-value]

    def _block(self, i: int) -> StatisticsBlock:
        return self.blocks[i]  # type: ignore[return-value]


def _refuse(names: set[str], why: str) -> None:
    if names:
        shown = ", ".join(map(repr, sorted(names)[:3])) + (", …" if len(names) > 3 else "")
        raise ValueError(
            f"these reverse statistics do not fit: {why} {shown}; they are of another model, of other settings or of "
            "a way through the model that was not planned yet"
        )
