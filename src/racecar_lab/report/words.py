"""Numbers as texts for people. Minus signs are real ones; None becomes a dash."""

from __future__ import annotations

import math

from racecar_lab.report.statistics import Estimate

NONE = "–"
MOST_PLACES = 6
"""Maximal number of decimal places; numbers that would need more are written with an exponent."""


def number(value: float | None, digits: int = 4) -> str:
    """A number as text with this many significant digits; None becomes a dash."""
    return NONE if value is None else _typeset(f"{value:z.{digits}g}")


def plus_minus(estimate: Estimate | None) -> str:
    """Text "mean ± standard deviation", rounded to two digits of the standard deviation; None becomes a dash."""
    if estimate is None:
        return NONE
    mean, sd = estimate.mean, estimate.sd
    if not sd:
        return number(mean) + ("" if sd is None else " ± 0")
    places = _places(sd, abs(mean))
    if places is None:
        return f"{number(mean, 3)} ± {number(sd, 2)}"
    return _typeset(f"{mean:z.{places}f} ± {sd:.{places}f}")


def interval(ends: tuple[float, float] | None) -> str:
    """Text "low to high" of an interval, rounded to two digits of half its width; None becomes a dash."""
    if ends is None:
        return NONE
    low, high = ends
    places = _places((high - low) / 2, max(abs(low), abs(high)))
    if places is None:
        return f"{number(low, 3)} to {number(high, 3)}"
    return _typeset(f"{low:z.{places}f} to {high:z.{places}f}")


def signed(value: float | None, spread: float | None = None) -> str:
    """A difference with its sign as text, rounded to two digits of ``spread``, such as its standard deviation; to three
    digits of its own if that is None or 0."""
    if value is None:
        return NONE
    places = _places(spread or 0.0)
    text = number(value, 3) if places is None else _typeset(f"{value:z.{places}f}")
    return ("+" if value > 0 else "") + text


def p_value(p: float | None) -> str:
    if p is None:
        return NONE
    return "< 0.001" if p < 0.001 else number(p, 2) if p < 0.1 else f"{p:.2f}"


def ratio(value: float | None) -> str:
    return NONE if value is None else f"{value:.2f} ×" if value < 100 else f"{value:.0f} ×"


def seconds(value: float) -> str:
    """A duration in seconds as text, in the unit that suits it."""
    units = {"h": 3600.0, "min": 60.0, "s": 1.0, "ms": 1e-3, "µs": 1e-6}
    name = next((name for name, size in units.items() if value >= size), "µs")
    return f"{value / units[name]:.3g} {name}"


def size(count: float) -> str:
    """A number of bytes as text, in the unit that suits it."""
    units = {"GiB": 2**30, "MiB": 2**20, "KiB": 2**10}
    name = next((name for name, size in units.items() if count >= size), "")
    return f"{count / units[name]:.3g} {name}" if name else f"{count:.0f} B"


def count(n: int, singular: str, plural: str = "") -> str:
    """A number of things, as "1 run" or "2 runs"."""
    return f"{n} {singular if n == 1 else plural or singular + 's'}"


def _places(spread: float, largest: float = 0.0) -> int | None:
    """Number of decimal places that show two digits of a spread; None if numbers up to ``largest`` are shorter with an
    exponent."""
    if spread <= 0 or not math.isfinite(spread) or largest >= 1e5:
        return None
    places = max(0, 1 - math.floor(math.log10(spread)))
    return places if places <= MOST_PLACES else None


def _typeset(text: str) -> str:
    """The text of a number with short exponents (e-5, not e-05) and real minus signs."""
    for long, short in (("e-0", "e-"), ("e+0", "e"), ("e+", "e")):
        text = text.replace(long, short)
    return text.replace("-", "−")
