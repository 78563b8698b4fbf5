"""Findings in words: the gain of one, a claim in all its settings, and the outcome of all claims in a sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from racecar_lab.report import words
from racecar_lab.report.findings import Finding
from racecar_lab.report.groups import collect
from racecar_lab.report.metrics import unit
from racecar_lab.report.settings import Setting, only, with_loss
from racecar_lab.report.verdicts import VERDICTS


def sentence(findings: Sequence[Finding]) -> str:
    """The outcome of all claims in one sentence: the first claim with its gain, and how many claims have each
    verdict."""
    judged = [finding for finding in findings if finding.judged]
    if not judged:
        return f"None of {words.count(len(findings), 'claim')} could be judged by these runs." if findings else ""
    n, counts = len(judged), Counter(finding.verdict for finding in judged)
    rest = f"of {n} claims {', '.join(f'{counts[name]} {name}' for name in VERDICTS if name in counts)}"
    if len(counts) == 1:
        rest = f"{f'all {n}' if n > 1 else 'the only claim'} {judged[0].verdict}"
    return f"{claim_text([finding for finding in judged if finding.claim.text == judged[0].claim.text])}; {rest}."


def tally(findings: Sequence[Finding]) -> str:
    """The number of claims with each verdict as a text, such as "3 claims: 2 × supported, 1 × too few runs"."""
    counts = Counter(finding.verdict for finding in findings)
    parts = ", ".join(f"{counts[name]} × {name}" for name in VERDICTS if counts[name])
    return f"{words.count(len(findings), 'claim')}: {parts}"


def claim_text(findings: Sequence[Finding]) -> str:
    """One claim in words, with its verdict and gain; if it was tested in several settings, with the smallest and the
    largest gain."""
    first = findings[0]
    if len(findings) == 1:
        return f"{first.claim.text}: {first.verdict} ({gain_text(first)})"
    counts = Counter(finding.verdict for finding in findings)
    verdicts = ", ".join(f"{name} in {counts[name]}" for name in VERDICTS if name in counts)
    ends = " to ".join(mean_text(extreme(findings, key=mean_of)) for extreme in (min, max))
    return f"{first.claim.text}: of {len(findings)} settings {verdicts} ({ends} {unit(first.claim).name})"


def gain_text(finding: Finding) -> str:
    """The gain of a finding with its interval as a text, such as "+1.2 points, 0.3 to 2.1"."""
    return f"{mean_text(finding)} {unit(finding.claim).name}, {words.interval(ends_of(finding))}"


def mean_text(finding: Finding) -> str:
    """The gain of a finding as a text without unit, such as "+1.2", rounded by the width of its interval."""
    low, high = ends_of(finding)
    return words.signed(mean_of(finding), (high - low) / 2)


def mean_of(finding: Finding) -> float:
    """The mean gain of a finding that has a verdict, in the unit of its claim."""
    assert finding.gain is not None
    return unit(finding.claim).factor * finding.gain.mean


def ends_of(finding: Finding) -> tuple[float, float]:
    """The ends of the confidence interval of a finding's gain, in the unit of its claim."""
    assert finding.interval is not None
    low, high = finding.interval
    return unit(finding.claim).factor * low, unit(finding.claim).factor * high


def distinct_settings(findings: Sequence[Finding]) -> list[Setting]:
    """For each finding the fields that distinguish its setting from those of the others. Left out are fields that never
    vary, that a claim names itself, or that follow from another field; of two that follow from each other, one with
    decimal numbers is left out."""
    named = {name for finding in findings for name in (*finding.claim.where, *finding.claim.against)}
    settings = [dict(with_loss(finding.setting)) for finding in findings]
    names = [name for name in dict.fromkeys(name for setting in settings for name in setting) if name not in named]
    names.sort(key=lambda name: any(isinstance(setting.get(name), float) for setting in settings))
    kept: list[str] = []
    for name in names:
        together = collect((tuple(map(setting.get, kept)), setting.get(name)) for setting in settings)
        if any(len(set(values)) > 1 for values in together.values()):
            kept.append(name)
    return [only(tuple(setting.items()), kept) for setting in settings]
