"""What became of claims, told in words: each by itself, one in all its settings, or all in a sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from racecar_lab.report import words
from racecar_lab.report.findings import Finding
from racecar_lab.report.groups import Setting, collect, with_loss
from racecar_lab.report.units import unit
from racecar_lab.report.verdicts import NOT_RUN, SIGNS, TOO_FEW


def judged(findings: Sequence[Finding]) -> list[Finding]:
    """Those that have a verdict."""
    return [finding for finding in findings if finding.interval and finding.verdict not in (TOO_FEW, NOT_RUN)]


def telling_settings(findings: Sequence[Finding]) -> list[Setting]:
    """What tells the settings of findings apart. Left out are fields that never vary, that a claim names itself, or
    that another field decides; of two that decide each other a number with decimals goes first."""
    named = {name for finding in findings for name in (*finding.claim.where, *finding.claim.against)}
    settings = [
        {name: value for name, value in with_loss(finding.setting) if name not in named} for finding in findings
    ]
    names = list(dict.fromkeys(name for setting in settings for name in setting))
    names.sort(key=lambda name: any(isinstance(setting.get(name), float) for setting in settings))
    kept: list[str] = []
    for name in names:
        together = collect((tuple(map(setting.get, kept)), setting.get(name)) for setting in settings)
        if any(len(set(values)) > 1 for values in together.values()):
            kept.append(name)
    return [tuple((name, value) for name, value in setting.items() if name in kept) for setting in settings]


def sentence(findings: Sequence[Finding]) -> str:
    """The finding in one sentence: the first claim with its number, and how many became what."""
    with_verdict = judged(findings)
    if not with_verdict:
        return f"None of {words.count(len(findings), 'claim')} could be judged by these runs." if findings else ""
    n, counts = len(with_verdict), Counter(finding.verdict for finding in with_verdict)
    rest = f"of {n} claims {', '.join(f'{counts[name]} {name}' for name in SIGNS if name in counts)}"
    if len(counts) == 1:
        rest = f"{f'all {n}' if n > 1 else 'the only claim'} {with_verdict[0].verdict}"
    first = [finding for finding in with_verdict if finding.claim.text == with_verdict[0].claim.text]
    return f"{claim_told(first)}; {rest}."


def claim_told(findings: Sequence[Finding]) -> str:
    """One claim, in all its settings."""
    first = findings[0]
    if len(findings) == 1:
        return f"{first.claim.text}: {first.verdict} ({gain_told(first)})"
    counts = Counter(finding.verdict for finding in findings)
    verdicts = ", ".join(f"{name} in {counts[name]}" for name in SIGNS if name in counts)
    ends = " to ".join(_mean_told(extreme(findings, key=mean_of)) for extreme in (min, max))
    return f"{first.claim.text}: of {len(findings)} settings {verdicts} ({ends} {unit(first.claim).name})"


def gain_told(finding: Finding) -> str:
    """As "+1.2 points, 0.3 to 2.1"."""
    assert finding.interval is not None
    scale = unit(finding.claim)
    low, high = (scale.factor * end for end in finding.interval)
    return f"{_mean_told(finding)} {scale.name}, {words.interval((low, high))}"


def _mean_told(finding: Finding) -> str:
    assert finding.interval is not None
    factor, (low, high) = unit(finding.claim).factor, finding.interval
    return words.signed(factor * mean_of(finding), factor * (high - low) / 2)


def mean_of(finding: Finding) -> float:
    assert finding.gain is not None
    return finding.gain.mean
