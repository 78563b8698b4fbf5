"""A progress bar on a terminal; elsewhere a line every few seconds for what takes long."""

import io
import re
import sys

import pytest

from racecar import MissingExtra
from racecar.support.progress import INTERVAL, bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Called in the test itself: pytest sets stderr anew between a fixture and its test."""
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm-256color")
    return screen


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def plain(text: str) -> str:
    """Without colours and cursor movements."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def work(title: str = "training", total: int | None = 3, show: bool | None = None, notes: str = "abc") -> None:
    with bar(title, total, show) as advance:
        for note in notes:
            advance(1, f"note {note}")


# --- when it shows ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("show", [False, None])
def test_short_work_is_silent_where_nobody_watches(capsys: pytest.CaptureFixture, show: bool | None):
    work(show=show)
    assert capsys.readouterr() == ("", "")


def test_shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    screen = terminal(monkeypatch)
    work()
    seen = plain(screen.getvalue())
    assert "training" in seen
    assert "3/3" in seen
    assert "note c" in seen
    assert capsys.readouterr().out == "", "stdout is for results"


def test_silent_on_a_terminal_if_asked(monkeypatch: pytest.MonkeyPatch):
    screen = terminal(monkeypatch)
    work(show=False)
    assert screen.getvalue() == ""


def test_shown_in_a_log_if_asked(capsys: pytest.CaptureFixture):
    work(show=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "training" in err
    assert "3/3" in err
    assert "\x1b" not in err, "no control codes in a log"


def test_silent_without_stderr(monkeypatch: pytest.MonkeyPatch):
    """As in programs without a console, where Python sets it to None."""
    monkeypatch.setattr(sys, "stderr", None)
    done = []
    with bar("training", 3) as advance:
        for step in range(3):
            advance(1, "note")
            done.append(step)
    assert done == [0, 1, 2]
    assert sys.stderr is None


def test_without_rich_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "rich"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "rich", None)
    with (
        pytest.raises(MissingExtra, match=r"^this needs rich: pip install 'racecar-training\[inspect\]'$"),
        bar("x", 1, True),
    ):
        pass


# --- what it shows ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a[/b]", "λ₁ → d′", ":smile:"])
def test_names_are_shown_as_they_are(capsys: pytest.CaptureFixture, name: str):
    """A layer's name may look like rich's markup."""
    work(title=f"pretraining {name}", show=True)
    with bar("x", 1, True) as advance:
        advance(1, f"note of {name}")
    err = capsys.readouterr().err
    assert f"pretraining {name}" in err
    assert f"note of {name}" in err


def test_an_error_passes_through_and_leaves_the_terminal_in_order(monkeypatch: pytest.MonkeyPatch):
    screen = terminal(monkeypatch)
    with pytest.raises(KeyError, match="mine"), bar("x", 2) as advance:  # noqa: PT012
        advance(1, "")
        raise KeyError("mine")
    text = screen.getvalue()
    assert text.rfind("\x1b[?25h") > text.rfind("\x1b[?25l") >= 0, "the cursor shows again"


# --- where there is no terminal -----------------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, to be set."""
    now = [100.0]
    monkeypatch.setattr("racecar.support.progress.time.monotonic", lambda: now[0])
    return now


def test_a_line_every_few_seconds(clock: list[float], capsys: pytest.CaptureFixture):
    with bar("training", 400) as advance:
        for i in range(400):
            clock[0] += 0.125
            advance(1, f"note {i + 1}")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 400 * 0.125 / INTERVAL
    for line in lines:
        done, note = re.fullmatch(r"training: (\d+) of 400 note (\d+)", line).groups()
        assert done == note


def test_an_end_that_is_not_known(clock: list[float], capsys: pytest.CaptureFixture):
    with bar("planning", None) as advance:
        clock[0] += INTERVAL
        advance(7, "jobs")
    assert capsys.readouterr().err == "planning: 7 jobs\n"
