"""Which halves of an autoencoder are filled from a generator, for which data."""

from __future__ import annotations

from torch import nn

from racecar_lab.experiment import Stage
from racecar_lab.networks.smoke import encoder, fill_decoder, fill_encoder, generator, weighted

TASKS = {"B1": "simulated smoke", "B2": "the real plume", "B3": "photographs of smoke"}
FILLS = {"decoder": "its decoder", "both": "both halves"}
"""What a stage takes of A, smoke's generator."""
CHANNELS = {"B1": 1, "B2": 3, "B3": 3}


def stage_name(task: str, fill: str = "") -> str:
    """As "AB1-both"; from scratch, the task's own name."""
    return f"A{task}-{fill}" if fill else task


def autoencoder_stages(epochs: int) -> tuple[Stage, ...]:
    """Every variant has either fill on every task, so that the controls are there; from scratch there is Std alone."""
    found = []
    for task in TASKS:
        for fill, told in FILLS.items():
            what = f"an autoencoder, {told} from A, smoke's GAN,"
            found.append(Stage(stage_name(task, fill), task, after="A", regularised=False, epochs=epochs, network=what))
        scratch = Stage(task, task, regularised=False, epochs=epochs, variants=("Std",), network="an autoencoder")
        found.append(scratch)
    return tuple(found)


def autoencoder(stage: Stage, widths: tuple[int, ...], source: nn.Sequential | None) -> nn.ModuleDict:
    """Encoder and decoder, (N, C, 64, 64) → (N, 1, 16, 16) → (N, C, 64, 64), with He's first weights but for what is
    filled: all random numbers are drawn either way, so that both fills share their fresh layers."""
    channels = CHANNELS[stage.task]
    front, back = encoder(widths, channels), generator(widths, channels)
    for layer in (*weighted(front), *weighted(back)):
        _start(layer)
    fill = stage.name.partition("-")[2]
    if source is not None:
        fill_decoder(back, source)
        if fill == "both":
            fill_encoder(front, source)
    return nn.ModuleDict({"autoencoder": nn.Sequential(front, back)})


def _start(layer: nn.Module) -> None:
    """He's normal numbers, by the inputs that a layer has, and biases of 0: as the generator has at first."""
    into = layer.weight.shape[1 if isinstance(layer, nn.Conv2d) else 0] * 9  # type: ignore[index]
    nn.init.normal_(layer.weight, std=(2 / into) ** 0.5)  # type: ignore[arg-type]
    nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
