"""A page that several tests look at."""

import pytest

from racecar_lab.report import write_report
from tests.lab.report.records import Peaks, peaks_records, record, write

BAD = '"><img src=x onerror="window.hacked=1"><script>window.hacked=1</script>|`*_[x](javascript:1) $\\x$'


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Records with names that try to break out of the page, and the page made from them."""
    folder = tmp_path_factory.mktemp("out")
    hostile = record(BAD, 0, {BAD: 0.5}, experiment=BAD, stage=BAD, config={BAD: BAD}, note=BAD, status="finished")
    wild = record(BAD, 1, {}, experiment=BAD, stage=BAD, config={BAD: 1}, note=BAD, status="diverged")
    hostile |= {"made": {"command": BAD, "device": BAD}, "tables": {BAD: [{BAD: BAD, "x": 0.5}]}}
    write(folder, [*peaks_records(), hostile, wild])
    report = write_report(folder, {"peaks": Peaks()})
    assert report.problems == []
    return folder


@pytest.fixture(scope="session")
def html(folder):
    return (folder / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def markdown(folder):
    return (folder / "report.md").read_text(encoding="utf-8")
