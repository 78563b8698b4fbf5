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
from racecar_lab.experiments.smoke.config import KEPT, SmokeConfig
from racecar_lab.experiments.smoke.measuring import BATCH, as_bytes, made
from racecar_lab.networks.smoke import lowered
from racecar_lab.running.results import Store
from racecar_lab.running.run import Run

COLUMNS = ("input", "output", "rebuilt input")
SIDE, HEAD, GAP = 128, 14, 4
"""Pixels: of a picture, of the line of text above it, between pictures."""
LEVELS = 32
"""Greys: few, so that the file is small."""
DURATION = 60
"""Milliseconds of a frame."""
MOST = 1_000_000
"""Bytes of a file."""
FORMATS = {".gif": "GIF", ".png": "PNG", ".apng": "PNG"}


def film(
    folder: Path, out: Path, variants: Sequence[str], *, data: Path | None = None, seed: int | None = None,
    plume: int = KEPT, every: int = 2,
) -> int:  # fmt: skip
    """Write the film of a finished run as GIF or APNG; returns its size in bytes.

    Args:
        folder: what ``racecar run smoke`` wrote into.
        variants: a row of pictures for each.
        seed: None: the smallest that all of them have.
        plume: 0 to 19; from 16 on, no training has seen it.
        every: of the frames, every so-many-th is shown.
    """
    if out.suffix.lower() not in FORMATS:
        raise ValueError(f"--out {out}: a film is a .gif or, animated, a .png")
    if every < 1:
        raise ValueError(f"--every must be at least 1, not {every}")
    runs = chosen(folder, variants, seed)
    frames, plumes = smoke.SMOKE.load(data, "all")
    if not (plumes == plume).any():
        raise ValueError(f"--plume {plume}: the plumes are 0 to {int(plumes.max())}")
    for run in runs:
        refuse_other_data(run, data)
    x = frames[plumes == plume][::every].float() / 255
    store = Store(folder)
    rows = {run.variant: pictures(run, store, x) for run in runs}
    content = encoded(drawn(rows), FORMATS[out.suffix.lower()])
    if len(content) > MOST:
        raise ValueError(
            f"the film has {len(content):,} bytes, and {MOST:,} are the most: show fewer, --every {every * 2}"
        )
    with write_atomically(out) as file:
        file.write(content)
    return len(content)


def chosen(folder: Path, variants: Sequence[str], seed: int | None) -> list[Run]:
    """The GAN of each variant, of one seed."""
    own = [
        run for run in Store(folder).runs()
        if run.record["experiment"] == "smoke" and run.finished
    ]  # fmt: skip
    if not own:
        raise ValueError(f"{folder} has no finished GAN of smoke: racecar run smoke --out {folder}")
    for name in variants:
        if name not in {run.variant for run in own}:
            raise ValueError(f"{folder} has no {name}, but {', '.join(dict.fromkeys(run.variant for run in own))}")
    common = set.intersection(*({run.seed for run in own if run.variant == name} for name in variants))
    if not common or seed not in (None, *common):
        known = ", ".join(map(str, sorted(common))) or "none"
        raise ValueError(f"seeds that all of {', '.join(variants)} have: {known}; choose one by --seed")
    wanted = min(common) if seed is None else seed
    return [next(run for run in own if (run.variant, run.seed) == (name, wanted)) for name in variants]


def refuse_other_data(run: Run, data: Path | None) -> None:
    """A film of other plumes than those that the run held out could show what it was trained on."""
    known, here = str(run.tables.get("data", "")), smoke.checksum(data)
    if known and here not in known:
        raise ValueError(f"{run.id} was trained with smoke of {known}, and the data folder has {here}: use its data")


def pictures(run: Run, store: Store, x: Tensor) -> tuple[Tensor, ...]:
    """Of high resolution x (N, 1, 64, 64): what ``COLUMNS`` name, (N, 1, …) in bytes."""
    config, one = config_of(run), Smoke()
    model: Any = one.networks(config, Stage("A"), None)
    model.load_state_dict(store.weights(run.id))
    generator: nn.Module = model["generator"].eval()
    low = lowered(x)
    back, _ = run_back(generator, low, {**one.reverse(config), "scale": "relative", "fraction": 1.0}, BATCH)
    return tuple(map(as_bytes, (low, made(generator, low), back)))


def config_of(run: Run) -> SmokeConfig:
    """As it was trained."""
    tuned = {name: value for name, value in (run.record.get("tuned") or {}).items() if name != "coefficient"}
    both = {**run.config, **tuned}
    given: dict[str, Any] = {name: tuple(one) if isinstance(one, list) else one for name, one in both.items()}
    return SmokeConfig(**given)


def drawn(rows: dict[str, tuple[Tensor, ...]]) -> list[Any]:
    """Pillow's pictures of all frames: a row for each variant, its name and what is shown above each picture."""
    image, draw = need("PIL.Image", "inspect"), need("PIL.ImageDraw", "inspect")
    size = GAP + (SIDE + GAP) * len(COLUMNS), (HEAD + SIDE + GAP) * len(rows)
    found = []
    for i in range(len(next(iter(rows.values()))[0])):
        sheet = image.new("L", size, 0)
        pen = draw.Draw(sheet)
        for r, (name, columns) in enumerate(rows.items()):
            top = (HEAD + SIDE + GAP) * r
            for c, (title, column) in enumerate(zip(COLUMNS, columns, strict=True)):
                left = GAP + (SIDE + GAP) * c
                large = F.interpolate(column[i : i + 1].float(), (SIDE, SIDE))[0, 0]
                levels = (large * (LEVELS - 1) / 255).round() * 255 / (LEVELS - 1)
                picture = image.fromarray(levels.round().to(torch.uint8).numpy())
                pen.text((left, top + 1), f"{name}: {title}" if c == 0 else title, fill=255)
                sheet.paste(picture, (left, top + HEAD))
        found.append(sheet)
    return found


def encoded(frames: Sequence[Any], kind: str) -> bytes:
    """An animation without end."""
    buffer = BytesIO()
    first, *others = frames
    first.save(buffer, kind, save_all=True, append_images=others, duration=DURATION, loop=0, optimize=True)
    return buffer.getvalue()
