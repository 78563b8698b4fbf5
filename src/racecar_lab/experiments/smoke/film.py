"""A short film of a held-out plume: input, output, and the input that the reverse pass rebuilds, frame by frame."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from racecar.support.extras import need
from racecar.support.files import write_atomically
from racecar_lab.datasets import smoke
from racecar_lab.experiment import Stage
from racecar_lab.experiments.shared import run_back
from racecar_lab.experiments.smoke import Smoke
from racecar_lab.experiments.smoke.config import TRAINING_PLUMES, SmokeConfig
from racecar_lab.experiments.smoke.measuring import BATCH, as_bytes, outputs
from racecar_lab.networks.smoke import lowered
from racecar_lab.running.results import Store
from racecar_lab.running.run import Run

COLUMNS = ("input", "output", "rebuilt input")
SIDE, HEAD, GAP = 128, 14, 4
"""Lengths in pixels: side of a picture, height of the text above it, gap between pictures."""
LEVELS = 32
"""Number of greys of a film: few, so that the file is small."""
DURATION = 60
"""Duration of a frame of a film in milliseconds."""
MAX_BYTES = 1_000_000
"""Largest size of a film in bytes."""
FORMATS = {".gif": "GIF", ".png": "PNG", ".apng": "PNG"}
"""Suffix of a film's file → Pillow's name of the format."""


def film(
    folder: Path, out: Path, variants: Sequence[str], *, data: Path | None = None, seed: int | None = None,
    plume: int = TRAINING_PLUMES, every: int = 2,
) -> int:  # fmt: skip
    """Write the film of finished runs as GIF or animated PNG, and return its size in bytes.

    Args:
        folder: results of ``racecar run smoke``.
        out: file to write.
        variants: names of the variants to show; each has a row of pictures.
        data: folder of the data set; None: the default one.
        seed: seed of the runs; None: the smallest that all variants have.
        plume: number of the plume, 0 to 19; those from 16 on are in no training set.
        every: show every n-th frame.
    """
    if out.suffix.lower() not in FORMATS:
        raise ValueError(f"--out {out}: a film is a .gif or, animated, a .png")
    if every < 1:
        raise ValueError(f"--every must be at least 1, not {every}")
    runs = choose_runs(folder, variants, seed)
    frames, plumes = smoke.SMOKE.load(data, "all")
    if not (plumes == plume).any():
        raise ValueError(f"--plume {plume}: the plumes are 0 to {int(plumes.max())}")
    for run in runs:
        refuse_other_data(run, data)
    x = frames[plumes == plume][::every].float() / 255
    store = Store(folder)
    rows = {run.variant: pictures(run, store, x) for run in runs}
    content = encode(draw_frames(rows), FORMATS[out.suffix.lower()])
    if len(content) > MAX_BYTES:
        raise ValueError(
            f"the film has {len(content):,} bytes, and {MAX_BYTES:,} are the most: show fewer, --every {every * 2}"
        )
    with write_atomically(out) as file:
        file.write(content)
    return len(content)


def choose_runs(folder: Path, variants: Sequence[str], seed: int | None) -> list[Run]:
    """Return the finished GAN run of each variant, all with one seed; ``seed`` None: the smallest that all have."""
    finished = [
        run for run in Store(folder).runs()
        if run.record["experiment"] == "smoke" and run.finished
    ]  # fmt: skip
    if not finished:
        raise ValueError(f"{folder} has no finished GAN of smoke: racecar run smoke --out {folder}")
    for name in variants:
        if name not in {run.variant for run in finished}:
            raise ValueError(f"{folder} has no {name}, but {', '.join(dict.fromkeys(run.variant for run in finished))}")
    common = set.intersection(*({run.seed for run in finished if run.variant == name} for name in variants))
    if not common or seed not in (None, *common):
        seeds = ", ".join(map(str, sorted(common))) or "none"
        raise ValueError(f"seeds that all of {', '.join(variants)} have: {seeds}; choose one by --seed")
    seed = min(common) if seed is None else seed
    return [next(run for run in finished if (run.variant, run.seed) == (name, seed)) for name in variants]


def refuse_other_data(run: Run, data: Path | None) -> None:
    """Raise an error unless the folder ``data`` has the data that the run was trained with: other data might show
    plumes that it was trained on."""
    recorded, current = str(run.tables.get("data", "")), smoke.checksum(data)
    if recorded and current not in recorded:
        raise ValueError(
            f"{run.id} was trained with smoke of {recorded}, and the data folder has {current}: use its data"
        )


def pictures(run: Run, store: Store, x: Tensor) -> tuple[Tensor, ...]:
    """Input, output and rebuilt input (N, 1, …) of a run's generator as uint8, for pictures of high resolution x (N, 1,
    64, 64)."""
    config, experiment = config_of(run), Smoke()
    model: Any = experiment.networks(config, Stage("A"), None)
    model.load_state_dict(store.weights(run.id))
    generator: nn.Module = model["generator"].eval()
    low = lowered(x)
    rebuilt, _ = run_back(generator, low, {**experiment.reverse(config), "scale": "relative"}, BATCH)
    return tuple(map(as_bytes, (low, outputs(generator, low), rebuilt)))


def config_of(run: Run) -> SmokeConfig:
    """The configuration that a run was trained with, including settings from a search."""
    tuned = {name: value for name, value in (run.record.get("tuned") or {}).items() if name != "weight"}
    values = {**run.config, **tuned}
    lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
    return SmokeConfig(**{**values, **lists})


def draw_frames(rows: dict[str, tuple[Tensor, ...]]) -> list[Any]:
    """Draw all frames of a film as Pillow images: a row of pictures for each variant, with a title above each. ``rows``
    has input, output and rebuilt input (N, 1, …) by variant."""
    image, draw = need("PIL.Image", "inspect"), need("PIL.ImageDraw", "inspect")
    size = GAP + (SIDE + GAP) * len(COLUMNS), (HEAD + SIDE + GAP) * len(rows)
    frames = []
    for i in range(len(next(iter(rows.values()))[0])):
        sheet = image.new("L", size, 0)
        pen = draw.Draw(sheet)
        for r, (name, columns) in enumerate(rows.items()):
            y = (HEAD + SIDE + GAP) * r
            for c, (title, column) in enumerate(zip(COLUMNS, columns, strict=True)):
                x = GAP + (SIDE + GAP) * c
                large = F.interpolate(column[i : i + 1].float(), (SIDE, SIDE))[0, 0]
                levels = (large * (LEVELS - 1) / 255).round() * 255 / (LEVELS - 1)
                picture = image.fromarray(levels.round().to(torch.uint8).numpy())
                pen.text((x, y + 1), f"{name}: {title}" if c == 0 else title, fill=255)
                sheet.paste(picture, (x, y + HEAD))
        frames.append(sheet)
    return frames


def encode(frames: Sequence[Any], kind: str) -> bytes:
    """File content of an endless animation in Pillow's format ``kind``."""
    buffer = BytesIO()
    first, *later = frames
    first.save(buffer, kind, save_all=True, append_images=later, duration=DURATION, loop=0, optimize=True)
    return buffer.getvalue()
