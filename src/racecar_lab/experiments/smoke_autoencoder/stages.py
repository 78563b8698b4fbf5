"""Stages of smoke-autoencoder, and autoencoders whose halves take weights from a generator."""

from __future__ import annotations

from torch import nn

from racecar_lab.experiment import Stage
from racecar_lab.networks.smoke import encoder, fill_decoder, fill_encoder, generator, weighted

TASKS = {"B1": "simulated smoke", "B2": "the real plume", "B3": "photographs of smoke"}
"""Name of a task → its description."""
FILLS = {"decoder": "its decoder", "both": "both halves"}
"""Fill → description of the part of an autoencoder that takes weights from stage A, smoke's generator."""
CHANNELS = {"B1": 1, "B2": 3, "B3": 3}
"""Task → number of colours (channels) of its pictures."""


def stage_name(task: str, fill: str = "") -> str:
    """Name of the stage that trains an autoencoder on a task: as "AB1-both" with weights from stage A; from scratch
    (``fill`` "") the name of the task."""
    return f"A{task}-{fill}" if fill else task


def autoencoder_stages(epochs: int) -> tuple[Stage, ...]:
    """All stages: on every task autoencoders with each fill, the part that takes weights from stage A, for all
    variants; and one from scratch, for Std only."""
    stages = []
    for task in TASKS:
        for fill, part in FILLS.items():
            name, network = stage_name(task, fill), f"an autoencoder, {part} from A, smoke's GAN,"
            stages.append(Stage(name, task, after="A", regularised=False, epochs=epochs, network=network))
        scratch = Stage(task, task, regularised=False, epochs=epochs, variants=("Std",), network="an autoencoder")
        stages.append(scratch)
    return tuple(stages)


def autoencoder(stage: Stage, widths: tuple[int, ...], source: nn.Sequential | None) -> nn.ModuleDict:
    """Make encoder and decoder, (N, C, 64, 64) → (N, 1, 16, 16) → (N, C, 64, 64). The decoder, or both halves, take
    weights from ``source``, as the stage's name says; None: neither.

    All other weights are He's. They are drawn for all layers first, so that they do not depend on the part that is
    filled.
    """
    channels = CHANNELS[stage.task]
    front, decoder = encoder(widths, channels), generator(widths, channels)
    for layer in (*weighted(front), *weighted(decoder)):
        _initialise(layer)
    fill = stage.name.partition("-")[2]
    if source is not None:
        fill_decoder(decoder, source)
        if fill == "both":
            fill_encoder(front, source)
    return nn.ModuleDict({"autoencoder": nn.Sequential(front, decoder)})


def _initialise(layer: nn.Module) -> None:
    """Set He's normal weights, by the layer's fan-in, and biases of 0, as in the generator of smoke."""
    fan_in = layer.weight.shape[1 if isinstance(layer, nn.Conv2d) else 0] * 9  # type: ignore[index]
    nn.init.normal_(layer.weight, std=(2 / fan_in) ** 0.5)  # type: ignore[arg-type]
    nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
