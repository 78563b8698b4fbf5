"""Command lines with very small settings, and what they leave: records, tables."""

import re

from racecar_lab.running.results import Store

PEAKS = ("run", "peaks", "--quick", "--set", "epochs=2", "--set", "nets=linear", "--workers", "1", "--out", "out")
INFORMATION = ("information", "--set", "epochs=1", "--set", "finetune=1", "--workers", "1", "--out", "out")
ONE = ("--variants", "Std", "--seeds", "1")


def records(folder):
    return [run.record for run in Store(folder).runs()]


def rows(text):
    """The table that a command ends with: head → cell, of each line. It may come in parts, side by side on paper."""
    lines = text.splitlines()
    whole = []
    for rule in (i for i, line in enumerate(lines) if line and set(line) <= set("- ")):
        starts = [m.start() for m in re.finditer("-+", lines[rule])]
        cuts = list(zip(starts, [*starts[1:], None], strict=True))
        end = next((i for i in range(rule, len(lines)) if not lines[i] or lines[i].startswith("Data sets: ")), None)
        head, *body = [[line[a:b].strip() for a, b in cuts] for line in (lines[rule - 1], *lines[rule + 1 : end])]
        part = [dict(zip(head, cells, strict=True)) for cells in body]
        whole = [one | more for one, more in zip(whole, part, strict=True)] if whole else part
    return whole
