"""Download of a file: resumed where it stopped, retried, checked, and only then moved to its place.

It uses urllib, because pooch did worse with the misbehaving server of the tests: it starts every try at the first byte,
has no limit to what it receives, asks three times for a file that is missing or wrong, and needs seven other packages.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from racecar.support.files import DiskFull, check_folder, naming
from racecar.support.progress import bar
from racecar_lab.datasets.base import DataError, words
from racecar_lab.datasets.checksum import differs

CHUNK = 1 << 18
TIMEOUT = 30.0
TRIES = 3
PAUSE = 1.0
"""Number of seconds before the second try of a download; doubled before each further one."""
TEMPORARY = (408, 416, 425, 429, 500, 502, 503, 504)
"""HTTP statuses after which another try may succeed; 416 means that the part received so far is of another file."""
SCHEMES = ("https",)
"""Permitted schemes of addresses, also after redirects: http would let others change the file on its way."""
MOST = 1 << 30
"""Maximal number of bytes of a file whose size is not known."""


def download(urls: Sequence[str], target: Path, size: int | None = None, checksum: str = "") -> None:
    """Download a file. The part received so far is in a file with the suffix .part, and is resumed next time.

    Args:
        urls: addresses of the same file, tried in order.
        target: path of the file.
        size: number of bytes; None if it is not known.
        checksum: as in :class:`~racecar_lab.datasets.base.File`; empty if it is not known.
    """
    check_folder(target.parent, "the data folder")
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.part")
    failures = []
    for url in urls:
        try:
            resumed = part.exists()
            _complete(url, part, size)
            if resumed and differs(part, size, checksum):  # it may have been a part of another file: start again
                part.unlink()
                _complete(url, part, size)
        except DataError as error:
            failures.append(f"{url} {error}")
            continue
        wrong = differs(part, size, checksum)
        if not wrong:
            os.replace(part, target)
            return
        part.unlink()
        failures.append(f"{url} {wrong}")
    raise DataError(f"{target} could not be fetched: {'; '.join(failures)}")


def _complete(url: str, part: Path, size: int | None) -> None:
    """Download the rest of a file, of which ``part`` has the beginning; gives up after ``TRIES`` failures without
    progress."""
    failures = 0
    while (before := _length(part)) != size:
        try:
            return _receive(url, part, size)
        except HTTPError as error:
            error.close()
            problem = f"answered {error.code} {error.reason}"
            if error.code == 416:
                part.unlink(missing_ok=True)
            if error.code not in TEMPORARY:
                raise DataError(problem) from error
        except (DataError, DiskFull):
            raise
        except (OSError, HTTPException, ValueError) as error:
            problem = str(getattr(error, "reason", "")) or words(error)
        failures = 1 if _length(part) > before else failures + 1
        if failures >= TRIES:
            raise DataError(f"failed {failures} times: {problem}")
        time.sleep(PAUSE * 2 ** (failures - 1))


def _receive(url: str, part: Path, size: int | None) -> None:
    """Send one request for the rest of a file, and append the answer to the file ``part``, which has the beginning."""
    _check_scheme(url, "is at")
    start, limit = _length(part), MOST if size is None else size
    request = Request(url, headers={"User-Agent": "racecar", **({"Range": f"bytes={start}-"} if start else {})})
    with build_opener(_Redirects).open(request, timeout=TIMEOUT) as answer:
        if answer.status != 206:
            start = 0  # the server sends the whole file
        elif not answer.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
            raise DataError(f"sent another part of the file than bytes {start}-")
        end = size if answer.length is None else start + answer.length
        if size is not None and end != size:
            raise DataError(f"has {end} bytes, not {size}")
        if end is not None and end > limit:
            raise DataError(f"has {end} bytes, more than {limit}")
        with bar(f"{part.stem}, KiB", end and end >> 10) as advance, open(part, "ab" if start else "wb") as file:
            advance(start >> 10, "")
            while start <= limit and (chunk := answer.read(CHUNK)):
                with naming(part):
                    file.write(chunk)
                start += len(chunk)
                advance(len(chunk) >> 10, "")
            with naming(part):
                file.flush()
                os.fsync(file.fileno())
    if start > limit:
        part.unlink()  # it is of another file
        raise DataError(f"sends more than {limit} bytes")
    if end is not None and start < end:
        raise ConnectionError(f"the connection ended after {start} of {end} bytes")


class _Redirects(HTTPRedirectHandler):
    """Follows redirects to addresses with a permitted scheme."""

    def redirect_request(self, *arguments: Any) -> Request | None:
        _check_scheme(arguments[-1], "sends us on to")
        return super().redirect_request(*arguments)


def _check_scheme(url: str, verb: str) -> None:
    """Refuse an address without a permitted scheme."""
    if urlsplit(url).scheme not in SCHEMES:
        raise DataError(f"{verb} {url}, which is not {' or '.join(SCHEMES)}")


def _length(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
