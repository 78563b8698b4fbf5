"""Made-up nets of the safety map: plain ones, and those of settings with a known gain."""

import random
from types import SimpleNamespace
from typing import NamedTuple

import pandas

from racecar_lab.experiments.safety.design import CONTEXTS, LAMBDAS, NORMS, Context, covering
from racecar_lab.experiments.safety.rule import COLUMNS, judge

A = "both:relative:layerwise"
B = "weights:anchored:full"


class Net(NamedTuple):
    """A row of the frame that the rule takes."""

    loss: str
    place: float
    depth: int
    start: str
    norm: str
    lr: float
    seed: int
    dead: bool = False
    source: float | None = 0.9
    probe: float | None = 0.7

    @property
    def setting(self):
        return (self.loss, self.place) if self.loss else None

    @property
    def context(self):
        return Context(*self[2:6])


def frame(rows):
    nets = pandas.DataFrame(rows, columns=COLUMNS)
    return nets.astype({"dead": bool, "source": float, "probe": float})


def judged(rows):
    return judge(frame(list(rows)))


def cell(cells, setting):
    """One setting of a summary."""
    row = cells.loc[setting]
    gain, error = row["gain"]
    source = {norm: row["source", norm] for norm in NORMS}
    return SimpleNamespace(
        nets=row["nets", "nets"], killed=row["nets", "killed"], gain=gain, error=error, source=source
    )


def plain(seeds=range(5), contexts=CONTEXTS, dead=()):
    return [
        Net("", 0.0, *context, seed, context in dead, 0.1 if context in dead else 0.9)
        for context in contexts
        for seed in seeds
    ]


def nets(setting, gain=0.0, noise=0.0, source=0.9, seeds=range(5), contexts=None, seed=0):
    rng = random.Random(f"{setting} {seed}")
    return [
        Net(*setting, *context, own, False, source, 0.7 + gain + noise * rng.gauss(0, 1))
        for context in contexts or covering(setting)
        for own in seeds
    ]


def world(gains, noise=0.0, seed=0):
    """Plain nets, and those of every (loss, place) with its gain; nothing for all others."""
    rows = plain()
    for loss in dict.fromkeys(loss for loss, _ in gains):
        for place in LAMBDAS:
            rows += nets((loss, place), gains.get((loss, place), 0.0), noise, seed=seed)
    return rows


def kill(rows, setting, which=0):
    """One net of a setting dies."""
    mine = [i for i, row in enumerate(rows) if row.setting == setting]
    i = mine[which % len(mine)]
    rows[i] = rows[i]._replace(dead=True, source=0.2, probe=0.2)


def confirmation(setting, seeds=range(100, 110), contexts=CONTEXTS):
    return plain(seeds, contexts) + nets(setting, seeds=seeds, contexts=contexts)
