"""Greedy layer-wise autoencoder pretraining, a classic baseline (Bengio et al. 2007), "Pre" in the tables.

Layer by layer from the input up, each layer is trained as an autoencoder with tied weights while all others stay fixed:
its forward operation encodes d_m into d_(m+1), its reverse step, with the same weight transposed, decodes that into
d'_m. Encoder, decoder and order come from Racecar's plan, so any model with a plan can be pretrained; the decoder
subtracts the layer's bias, as the reverse pass does, and has no bias itself.
"""

from __future__ import annotations

import math
import re
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from os import PathLike
from typing import Any

import torch
from torch import Tensor, nn

from racecar.errors import DeadLayerWarning
from racecar.pretrain.chosen import Chosen
from racecar.pretrain.store import Pretrained, ProgressFile
from racecar.racecar import Racecar, call_arguments
from racecar.support.eval_mode import eval_mode
from racecar.support.progress import bar
from racecar.support.torch_private import map_tensors
from racecar.watch.guards import check_model
from racecar.watch.names import shown

EVERY = 20
"""Steps between two updates of the progress bar, each of which reads the loss and so waits for the device."""
BOUND = 1e4
"""A training has diverged if its loss is this many times that of the epoch's first step, or of 1 if 1 is larger."""


def greedy(
    model: nn.Module,
    loader: Iterable[Any],
    *,
    epochs: int = 1,
    lr: float = 1e-3,
    optimiser: Callable[[list[nn.Parameter]], torch.optim.Optimizer] | None = None,
    layers: str | Sequence[str] | None = None,
    scale: str = "relative",
    fraction: float = 1.0,
    inputs: Callable[[Any], Any] | None = None,
    checkpoint: str | PathLike[str] | None = None,
    progress: bool | None = None,
) -> list[Pretrained]:
    """Pretrain a model in place, layer by layer, without labels.

    Args:
        model: any model that Racecar can plan, on the device to train it on. Batch norms use batch statistics and
            update their running ones; dropout is off.
        loader: the batches, each a tensor, a tuple or list whose first element is the input, or a dict of keyword
            arguments; iterated ``epochs`` times for every layer.
        epochs: epochs for each layer.
        lr: learning rate of Adam, unless ``optimiser`` is given.
        optimiser: function from a layer's list of parameters to an optimiser.
        layers: layer-name pattern or patterns of the layers to train; None: all.
        scale, fraction: settings of the reverse loss, as for ``Racecar``.
        inputs: function from a batch to the model's input, for batches of another form.
        checkpoint: a file that is written after every layer. If it exists, training continues after the layers in it,
            with their random state.
        progress: whether to show a progress bar; None: on a terminal only.

    Returns:
        One record for each trained layer, in the order of training.
    """
    check_model(model)
    if isinstance(epochs, bool) or not isinstance(epochs, int) or epochs < 1:
        raise ValueError(f"epochs must be a whole number of at least 1, not {epochs}")
    if isinstance(loader, Iterator):
        raise ValueError("the loader can be gone through only once: give one that can be gone through again")
    prepare = _Inputs(model, inputs)
    example = next(iter(loader), None)
    if example is None:
        raise ValueError("the loader has no batch")
    with eval_mode(model, "batch"), torch.enable_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeadLayerWarning)  # a loss that is not finite ends it, and says so itself
        chosen = Chosen(model, prepare(example), layers)
        rr = Racecar(
            model,
            prepare(example),
            mode="layerwise",
            scale=scale,
            fraction=fraction,
            gradient="both",
            reduction="sum",
        )
        settings = {"epochs": epochs, "lr": lr, "scale": scale, "fraction": fraction}
        store = ProgressFile(checkpoint, model, settings, loader, chosen.layers)
        done = store.load()
        all_parameters = [model.get_parameter(name) for name in chosen.all_names]
        before = [(parameter.requires_grad, parameter.grad) for parameter in all_parameters]
        try:
            for i, (layer, names) in enumerate(chosen.layers.items()):
                if layer in {record.layer for record in done}:
                    continue
                for parameter in all_parameters:
                    parameter.requires_grad_(False)
                    parameter.grad = None
                parameters = [model.get_parameter(name) for name in names]
                for parameter in parameters:
                    parameter.requires_grad_(True)
                rr.weight = {re.sub(r"([*?[])", r"[\1]", layer): 1.0}  # the name itself, no pattern
                layer_optimiser = optimiser(parameters) if optimiser is not None else torch.optim.Adam(parameters, lr)
                title = f"pretraining {shown(layer)} ({i + 1} of {len(chosen.layers)})"
                done.append(_train(rr, layer, loader, prepare, layer_optimiser, epochs, title, progress))
                store.save(done)
        finally:
            for parameter, (requires_grad, gradient) in zip(all_parameters, before, strict=True):
                parameter.requires_grad_(requires_grad)
                parameter.grad = gradient
    return done


def _train(
    rr: Racecar,
    name: str,
    loader: Iterable[Any],
    prepare: _Inputs,
    optimiser: torch.optim.Optimizer,
    epochs: int,
    title: str,
    progress: bool | None,
) -> Pretrained:
    """Train the one layer that ``rr`` constrains on its racecar loss alone, for this many epochs.

    Args:
        rr: a Racecar whose other layers are frozen and have weight 0.
        name: of the layer.
        prepare: function from a batch of the loader to the model's inputs.
        title: of the progress bar.
        progress: whether to show it; None: if the output is a terminal.
    """
    began, steps, means, displayed = time.perf_counter(), 0, [], 0
    batches = len(loader) if isinstance(loader, Sized) else None
    with bar(title, None if batches is None else batches * epochs, progress) as advance:
        for _ in range(epochs):
            losses: list[Tensor] = []
            for batch in loader:
                args, kwargs = call_arguments(prepare(batch), rr.model)
                _, loss = rr(*args, **kwargs)
                if loss.requires_grad:  # not if this batch takes a branch without this layer
                    optimiser.zero_grad()
                    loss.backward()
                    optimiser.step()
                losses.append(loss.detach())
                steps += 1
                if len(losses) % EVERY == 1:
                    advance(steps - displayed, f"reverse loss {_finite(loss, name, steps):.4g}")
                    displayed = steps
            if not losses:
                raise ValueError("the loader has no batch left: give one that can be gone through again")
            advance(steps - displayed, "")
            displayed = steps
            means.append(_finite(torch.stack(losses).mean(), name, steps))
            if max(means[-1], float(losses[-1])) > BOUND * max(1.0, float(losses[0])):
                raise _diverged(name, means[-1], steps)
    return Pretrained(name, means[0], means[-1], steps, time.perf_counter() - began)


def _finite(loss: Tensor, name: str, step: int) -> float:
    """The loss as a number; raises if it is infinite or NaN."""
    value = float(loss.detach())
    if not math.isfinite(value):
        raise _diverged(name, value, step)
    return value


def _diverged(name: str, value: float, step: int) -> FloatingPointError:
    return FloatingPointError(f"pretraining of layer {shown(name)!r} diverged: loss {value:g} in step {step}; lower lr")


class _Inputs:
    """A function from a batch of the loader to the model's input, on the model's device."""

    def __init__(self, model: nn.Module, prepare: Callable[[Any], Any] | None) -> None:
        parameter = next(model.parameters(), None)
        self.device = None if parameter is None else parameter.device
        self.prepare = prepare

    def __call__(self, batch: Any) -> Any:
        if self.prepare is not None:
            batch = self.prepare(batch)
        elif isinstance(batch, (tuple, list)):
            if not batch:
                raise ValueError("a batch of the loader is empty")
            batch = batch[0]
        return map_tensors(lambda x: x.to(self.device, non_blocking=True), batch)
