"""Made-up nets of the safety map: plain ones, and those of settings with a known gain."""

import random
from dataclasses import replace

from racecar_lab.experiments.safety.design import CONTEXTS, LAMBDAS, Loss, Setting, covering
from racecar_lab.experiments.safety.rule import Row

A = Loss("both", "relative", "layerwise")
B = Loss("weights", "anchored", "full")


def plain(seeds=range(5), contexts=CONTEXTS, dead=()):
    return [
        Row(None, context, seed, context in dead, 0.1 if context in dead else 0.9, 0.7)
        for context in contexts
        for seed in seeds
    ]


def nets(setting, gain=0.0, noise=0.0, source=0.9, seeds=range(5), contexts=None, seed=0):
    rng = random.Random(f"{setting} {seed}")
    return [
        Row(setting, context, one, False, source, 0.7 + gain + noise * rng.gauss(0, 1))
        for context in contexts or covering(setting)
        for one in seeds
    ]


def world(gains, noise=0.0, seed=0):
    """Plain nets, and those of every (loss, place) with its gain; nothing for all others."""
    found = plain()
    for loss in dict.fromkeys(loss for loss, _ in gains):
        for place in LAMBDAS:
            found += nets(Setting(loss, place), gains.get((loss, place), 0.0), noise, seed=seed)
    return found


def kill(rows, setting, which=0):
    """One net of a setting dies."""
    mine = [i for i, row in enumerate(rows) if row.setting == setting]
    i = mine[which % len(mine)]
    rows[i] = replace(rows[i], dead=True, source=0.2, probe=0.2)


def confirmation(setting, seeds=range(100, 110), contexts=CONTEXTS):
    return plain(seeds, contexts) + nets(setting, seeds=seeds, contexts=contexts)
