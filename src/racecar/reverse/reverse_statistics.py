"""Running statistics of the reverse data: what batch norms are applied to in the reverse pass.

A batch norm's own running statistics are those of forward data, which differs. The statistics of the reverse data are
kept beside the model, for each place where the reverse pass applies a batch norm. A norm that several layers read has a
place for each of them, with other data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from racecar.plan.norms import Norm
from racecar.reverse.statistics_block import StatisticsBlock
from racecar.rules.context import BatchStatistics, RunningStatistics
from racecar.support.torch_private import in_transform


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
        """Name of a place → (index of its block, index in the block)."""
        self._sizes: dict[str, int] = {}
        """Key → number of channels of the first norm with this key."""

    def __len__(self) -> int:
        return len(self._places)

    def __bool__(self) -> bool:
        return True

    @property
    def keys(self) -> list[str]:
        """The names of all places: "layer:i" for operation i among those that the reverse pass applies again before the
        layer's input."""
        return list(self._places)

    @property
    def known(self) -> bool:
        """Whether anything was recorded so far; waits for the device."""
        return any(bool(block.count.any()) for block in self._blocks())

    def add(self, norms: Mapping[str, Norm]) -> None:
        """Add places for the keys that are new. Existing statistics keep their memory, which CUDA graphs may use."""
        for key, norm in norms.items():
            self._sizes.setdefault(key, norm.channels)
        named = {self._name(key, norm.channels): norm for key, norm in norms.items()}
        new = {name: norm for name, norm in named.items() if name not in self._places}
        for device, dtype in dict.fromkeys((norm.device, norm.dtype) for norm in new.values()):
            alike = {name: norm for name, norm in new.items() if (norm.device, norm.dtype) == (device, dtype)}
            self._places.update((name, (len(self.blocks), i)) for i, name in enumerate(alike))
            self.blocks.append(StatisticsBlock(alike))

    def _name(self, key: str, channels: int) -> str:
        """The name of a place: its key; with the channels if another branch of the model has another norm there."""
        return key if self._sizes.get(key, channels) == channels else f"{key}x{channels}"

    def _by_name(self, batch: Mapping[str, BatchStatistics]) -> dict[str, BatchStatistics]:
        return {self._name(key, statistics.mean.numel()): statistics for key, statistics in batch.items()}

    def find(self, key: str, channels: int) -> RunningStatistics | None:
        """Mean, variance and whether anything was recorded at one place; None: there is no such place."""
        name = self._name(key, channels)
        if name not in self._places:
            return None
        block, i = self._place(name)
        return (*block.place(i), block.count[i] > 0)

    def updated(self, batch: Mapping[str, BatchStatistics]) -> list[Tensor]:
        """All statistics after one more batch, as new tensors for :meth:`assign`."""
        if not batch:
            return []
        batch = self._by_name(batch)
        return [tensor for block in self._blocks() for tensor in block.updated(batch)]

    def assign(self, new: Sequence[Tensor]) -> None:
        """Replace all values by those that :meth:`updated` returned."""
        for block, values in zip(self._blocks(), zip(*[iter(new)] * 3, strict=True), strict=False):
            block.assign(values)

    def update(self, batch: Mapping[str, BatchStatistics]) -> None:
        """Add one batch. Inside a torch.func transform nothing is added, unless the statistics belong to it, too."""
        if not batch:
            return
        batch = self._by_name(batch)
        transformed = in_transform(next(iter(batch.values())).mean)
        for block in self._blocks():
            if transformed != in_transform(block.mean):
                return
            statistics = next((batch[key] for key in block.keys if key in batch), None)
            if statistics is None:
                continue
            if block.mean.device != statistics.mean.device:  # the model was moved
                block.to(statistics.mean.device)
            block.assign(block.updated(batch))

    def reset(self) -> None:
        """Forget everything that was recorded."""
        for block in self._blocks():
            block.assign((torch.zeros_like(block.mean), torch.ones_like(block.var), torch.zeros_like(block.count)))

    def export(self) -> dict[str, Tensor]:
        """All of them by name, as copies: "key.mean" (C,), "key.var" (C,) and "key.count" (), for a file."""
        exported: dict[str, Tensor] = {}
        for name in self._places:
            block, i = self._place(name)
            mean, var = block.place(i)
            exported |= {
                f"{name}.mean": mean.clone(),
                f"{name}.var": var.clone(),
                f"{name}.count": block.count[i].clone(),
            }
        return exported

    def load(self, exported: Mapping[str, Tensor]) -> None:
        """Load what :meth:`export` returned; raises a ValueError if it is of another model or of other settings."""
        present = self.export()
        _refuse(set(exported) - set(present), "there is no place for")
        _refuse(set(present) - set(exported), "there is nothing for")
        for name, tensor in present.items():
            if exported[name].shape != tensor.shape:
                raise ValueError(
                    f"these reverse statistics do not fit: {name!r} has shape {tuple(exported[name].shape)}, "
                    f"not {tuple(tensor.shape)}"
                )
        self._copy(exported)

    def replace(self, other: ReverseStatistics) -> None:
        """Take the values of ``other``, whose places must all be here; the remaining places are reset."""
        self.reset()
        self._copy(other.export())

    def _copy(self, exported: Mapping[str, Tensor]) -> None:
        for name in self._places:
            if f"{name}.mean" in exported:
                block, i = self._place(name)
                for tensor, field in zip((*block.place(i), block.count[i]), ("mean", "var", "count"), strict=True):
                    tensor.copy_(exported[f"{name}.{field}"])

    @classmethod
    def restore(cls, exported: Mapping[str, Tensor]) -> ReverseStatistics:
        """The statistics of a calibration, from what their :meth:`export` returned."""
        statistics, means = cls(), {name[:-5]: mean for name, mean in exported.items() if name.endswith(".mean")}
        statistics.add({name: Norm(len(mean), 0.0, mean.device, mean.dtype) for name, mean in means.items()})
        statistics.load(exported)
        return statistics

    def _blocks(self) -> Iterable[StatisticsBlock]:
        return self.blocks  # type: ignore[return-value]

    def _place(self, name: str) -> tuple[StatisticsBlock, int]:
        block, i = self._places[name]
        return self.blocks[block], i  # type: ignore[return-value]


def _refuse(names: set[str], problem: str) -> None:
    if names:
        listed = ", ".join(map(repr, sorted(names)[:3])) + (", …" if len(names) > 3 else "")
        raise ValueError(
            f"these reverse statistics do not fit: {problem} {listed}; they are of another model, of other settings or "
            "of a branch of the model that was not planned yet"
        )
