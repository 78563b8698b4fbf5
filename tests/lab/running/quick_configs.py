"""The short form of every experiment, one configuration each."""

from dataclasses import replace

from racecar_lab.experiments import EXPERIMENTS, OURS

QUICK = {name: one.Config(**one.quick.settings) for name, one in EXPERIMENTS.items()}
SLICES = [one.name for one in OURS if hasattr(QUICK[one.name], "grid")]
QUICK |= {name: replace(QUICK[name], grid=False) for name in SLICES}  # one configuration each
QUICK["texture-shape"] = replace(QUICK["texture-shape"], fold=0, slim=1.0)
