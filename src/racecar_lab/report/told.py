"""What became of claims, told in words: each by itself, one in all its settings, or all in a sentence."""

from __future__ import annotations

from collections.abc import Sequence

from racecar_lab.report import words
from racecar_lab.report.findings import Finding
from racecar_lab.report.groups import Setting, collect, with_loss
from racecar_lab.report.units import unit
from racecar_lab.report.verdicts import NOT_RUN, SIGNS, TOO_FEW


def judged(findings: Sequence[Finding]) -> list[Finding]:
    """Those that have a verdict."""
    return [one for one in findings if one.verdict not in (TOO_FEW, NOT_RUN) and one.interval is not None]


def telling_settings(findings: Sequence[Finding]) -> list[Setting]:
    """What tells the settings of findings apart. Left out are fields that never vary, that a claim names itself, or
    that another field decides; of two that decide each other a number with decimals goes first."""
    named = {name for one in findings for name in (*one.claim.where, *one.claim.against)}
    settings = [{name: value for name, value in with_loss(one.setting) if name not in named} for one in findings]
    names = [
        name for name in dict.fromkeys(name for one in settings for name in one) if len(_values(settings, name)) > 1
    ]
    names.sort(key=lambda name: any(isinstance(one.get(name), float) for one in settings))
    kept: list[str] = []
    for name in names:
        together = collect((tuple(one.get(each) for each in kept), one.get(name)) for one in settings)
        if any(len(set(some)) > 1 for some in together.values()):
            kept.append(name)
    return [tuple((name, one[name]) for name in one if name in kept) for one in settings]


def _values(settings: Sequence[dict[str, object]], name: str) -> set[object]:
    return {one.get(name) for one in settings}


def sentence(findings: Sequence[Finding]) -> str:
    """The finding in one sentence: the first claim with its number, and how many became what."""
    some = judged(findings)
    if not some:
        return f"None of {words.count(len(findings), 'claim')} could be judged by these runs." if findings else ""
    counts = collect((one.verdict, one) for one in some)
    told = [f"{len(counts[name])} {name}" for name in SIGNS if name in counts]
    all_ = f"all {len(some)}" if len(some) > 1 else "the only claim"
    rest = f"{all_} {next(iter(counts))}" if len(counts) == 1 else f"of {len(some)} claims {', '.join(told)}"
    first = [one for one in some if one.claim.text == some[0].claim.text]
    return f"{claim_told(first)}; {rest}."


def claim_told(own: Sequence[Finding]) -> str:
    """One claim, in all its settings."""
    first, *others = own
    if not others:
        return f"{first.claim.text}: {first.verdict} ({gain_told(first)})"
    counts = collect((one.verdict, one) for one in own)
    told = ", ".join(f"{name} in {len(counts[name])}" for name in SIGNS if name in counts)
    ends = " to ".join(_mean_told(some(own, key=mean_of)) for some in (min, max))
    return f"{first.claim.text}: of {len(own)} settings {told} ({ends} {unit(first.claim).name})"


def gain_told(found: Finding) -> str:
    """As "+1.2 points, 0.3 to 2.1"."""
    assert found.interval is not None
    of = unit(found.claim)
    low, high = (of.factor * end for end in found.interval)
    return f"{_mean_told(found)} {of.name}, {words.interval((low, high))}"


def _mean_told(found: Finding) -> str:
    assert found.interval is not None
    factor, (low, high) = unit(found.claim).factor, found.interval
    return words.signed(factor * mean_of(found), factor * (high - low) / 2)


def mean_of(found: Finding) -> float:
    assert found.gain is not None
    return found.gain.mean
