"""The rule that answers each question about the streams from the verdicts of its claims; ``claims`` has it in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from racecar_lab.experiments.streams.claims import CLAIMS, QUESTIONS, StreamCell, StreamQuestion
from racecar_lab.report.findings import Finding
from racecar_lab.report.verdicts import CONTRADICTED, NOT_RUN, SUPPORTED, TOO_FEW

Answer = Literal["yes", "no", "open", "not run"]
Answers = Mapping[StreamQuestion, Mapping[StreamCell, Answer]]


def answers(findings: Sequence[Finding]) -> Answers:
    """The answer to every question on every stream and net with claims: question → stream and net → answer."""
    verdicts: dict[str, list[str]] = {}
    for finding in findings:
        verdicts.setdefault(finding.claim.text, []).append(finding.verdict)
    by_question: dict[StreamQuestion, dict[StreamCell, Answer]] = {question: {} for question in QUESTIONS}
    for (question, cell), claims in CLAIMS.items():
        verdicts_of_cell = [verdict for claim in claims for verdict in verdicts.get(claim.text, [NOT_RUN])]
        by_question[question][cell] = _answer(verdicts_of_cell)
    return by_question


def _answer(verdicts: Sequence[str]) -> Answer:
    """The answer to a question on one stream and net, from the verdicts of its claims there."""
    if all(verdict == SUPPORTED for verdict in verdicts):
        return "yes"
    if CONTRADICTED in verdicts:
        return "no"
    return "not run" if all(verdict in (NOT_RUN, TOO_FEW) for verdict in verdicts) else "open"


def overall_answer(answer_by_cell: Mapping[StreamCell, Answer]) -> Answer:
    """The answer to a question as a whole: the one of all streams and nets on which it was run, or "open" if they
    differ."""
    different = {answer for answer in answer_by_cell.values() if answer != "not run"}
    return "not run" if not different else different.pop() if len(different) == 1 else "open"
