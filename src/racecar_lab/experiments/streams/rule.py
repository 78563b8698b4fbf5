"""The rule of ``claims``: what becomes of each question, from the verdicts of its claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from racecar_lab.experiments.streams.claims import CLAIMS, QUESTIONS, StreamCell, StreamQuestion
from racecar_lab.report.findings import Finding
from racecar_lab.report.verdicts import CONTRADICTED, NOT_RUN, SUPPORTED, TOO_FEW

Answer = Literal["yes", "no", "open", "not run"]
Answers = Mapping[StreamQuestion, Mapping[StreamCell, Answer]]


def answers(findings: Sequence[Finding]) -> Answers:
    """Question → stream and net → answer."""
    verdicts: dict[str, list[str]] = {}
    for one in findings:
        verdicts.setdefault(one.claim.text, []).append(one.verdict)
    found: dict[StreamQuestion, dict[StreamCell, Answer]] = {question: {} for question in QUESTIONS}
    for (question, cell), some in CLAIMS.items():
        found[question][cell] = _answer([verdict for one in some for verdict in verdicts.get(one.text, [NOT_RUN])])
    return found


def _answer(verdicts: Sequence[str]) -> Answer:
    if all(one == SUPPORTED for one in verdicts):
        return "yes"
    if CONTRADICTED in verdicts:
        return "no"
    return "not run" if all(one in (NOT_RUN, TOO_FEW) for one in verdicts) else "open"


def whole(found: Mapping[StreamCell, Answer]) -> Answer:
    """Of a question: what it is wherever it was run; open where that differs."""
    run = {one for one in found.values() if one != "not run"}
    return "not run" if not run else run.pop() if len(run) == 1 else "open"
