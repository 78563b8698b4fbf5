"""The texts, numbers of the paper and figures that only reports of an experiment show."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from racecar_lab.claim import Paper

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from racecar_lab.report.page_table import Table
    from racecar_lab.running.run import Run


def nothing_to_say(config: Any) -> str:
    """An empty description of the data: the default, for an experiment on the paper's data."""
    return ""


def no_figures(runs: Sequence[Run]) -> Mapping[str, Figure]:
    """No figures: the default, for an experiment that draws none of its own."""
    return {}


@dataclass(frozen=True, kw_only=True)
class Reporting:
    """Everything that pages and lists show of an experiment besides its claims and records. Nothing of it is needed to
    run the experiment, and a page is made without it, too."""

    title: str = ""
    """Heading of the page; empty: the experiment's name."""
    section: str = ""
    """Section of the paper that the experiment is from; "ours" if it is not in the paper."""
    summary: str = ""
    """A few sentences on the experiment's question and design."""
    paper: tuple[Paper, ...] = ()
    """Numbers that the paper prints."""
    first_weights: str = "PyTorch's own"
    """Initial weights of the networks in words, unless the configuration has a field ``start``."""
    describe_data: Callable[[Any], str] = nothing_to_say
    """Function of a configuration: a description of its data, if they are not the paper's; otherwise empty."""
    figures: Callable[[Sequence[Run]], Mapping[str, Figure]] = no_figures
    """Function of the finished runs: title → figure. If there are none, a page shows every run and the curves over
    training. An experiment with ``sentences_and_tables`` gets the diverged runs, too."""
    paper_table: Callable[[Sequence[Run]], Table | None] | None = None
    """Function of the finished runs: a short table of the paper's results and ours for the top of the page, or None."""
    sentences_and_tables: Callable[[Sequence[Run]], tuple[Sequence[str], Sequence[Table]]] | None = None
    """Function of all runs: the results in sentences and short tables. They replace the usual tables, for an experiment
    with too many settings for those."""
