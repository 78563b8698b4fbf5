"""One file from the network: resumed where it stopped, tried again, checked, and only then in its place.

By urllib, since pooch did worse against the misbehaving server of the tests: it starts every try at the first byte,
receives without an end, asks three times for what is missing or wrong, and needs seven other packages.
"""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Callable, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from racecar.support.files import check_folder, naming
from racecar.support.progress import bar
from racecar_lab.datasets.base import DataError, words
from racecar_lab.datasets.checksum import differs

CHUNK = 1 << 18
TIMEOUT = 30.0
TRIES = 3
PAUSE = 1.0
"""Seconds before the second try; twice as many before each further one."""
PASSING = (408, 416, 425, 429, 500, 502, 503, 504)
"""HTTP statuses that another try may change; 416 says that the part that is here belongs to another file."""
SCHEMES = ("https",)
"""How files may come, also where a server sends us on to another one: by http anybody on the way could change them."""
MOST = 1 << 30
"""Bytes that are received of a file whose size is not known."""

Show = Callable[[int], None]
"""(bytes that are here) → None."""


class _Passing(Exception):
    """A failure that another try may mend."""


def download(urls: Sequence[str], target: Path, size: int | None = None, checksum: str = "") -> None:
    """Fetch a file; what has arrived is kept beside it, with the ending .part, for the next time.

    Args:
        urls: the same file in several places, tried in order.
        target: where it goes.
        size: in bytes, if it is known.
        checksum: as in :class:`~racecar_lab.datasets.base.File`, if it is known.
    """
    check_folder(target.parent, "the data folder")
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.part")
    failures = []
    with bar(f"{target.name}, KiB", None if size is None else size >> 10) as advance:
        shown = 0

        def show(done: int) -> None:
            nonlocal shown
            advance((done >> 10) - shown, "")
            shown = done >> 10

        for url in urls:
            for resumed in (part.exists(), False):
                try:
                    _complete(url, part, size, show)
                except DataError as error:
                    failures.append(f"{url} {error}")
                    break
                wrong = differs(part, size, checksum)
                if not wrong:
                    os.replace(part, target)
                    return
                part.unlink()
                if not resumed:  # else its beginning may be of another file: once more from the start
                    failures.append(f"{url} {wrong}")
                    break
    raise DataError(f"{target} could not be fetched: {'; '.join(failures)}")


def _complete(url: str, part: Path, size: int | None, show: Show) -> None:
    """Fetch what is missing of a file, in several tries; they are counted anew whenever more of it has arrived."""
    _check_scheme(url, "is at")
    failed = 0
    while (before := _length(part)) != size:
        try:
            return _receive(url, part, size, show)
        except _Passing as error:
            failed = 1 if _length(part) > before else failed + 1
            if failed >= TRIES:
                raise DataError(f"failed {failed} times: {error}") from error
            time.sleep(PAUSE * 2 ** (failed - 1))


def _receive(url: str, part: Path, size: int | None, show: Show) -> None:
    """One request for the rest of a file."""
    start, most = _length(part), MOST if size is None else size
    request = Request(url, headers={"User-Agent": "racecar", **({"Range": f"bytes={start}-"} if start else {})})
    try:
        with build_opener(_Redirects).open(request, timeout=TIMEOUT) as answer:
            if answer.status != 206:
                start = 0  # the server sends all of it
            elif not answer.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
                raise DataError(f"sent another part of the file than bytes {start}-")
            end = size if answer.length is None else start + answer.length
            if end != (size or end):
                raise DataError(f"has {end} bytes, not {size}")
            if end is not None and end > most:
                raise DataError(f"has {end} bytes, more than {most}")
            show(start)
            with open(part, "ab" if start else "wb") as file:
                while start <= most and (chunk := answer.read(CHUNK)):
                    with naming(part):
                        file.write(chunk)
                    start += len(chunk)
                    show(start)
                with naming(part):
                    file.flush()
                    os.fsync(file.fileno())
    except HTTPError as error:
        with error:
            if error.code == 416:
                part.unlink(missing_ok=True)
            kind = _Passing if error.code in PASSING else DataError
            raise kind(f"answered {error.code} {error.reason}") from error
    except URLError as error:
        raise _Passing(f"cannot be reached: {error.reason}") from error
    except (ConnectionError, TimeoutError, HTTPException, ssl.SSLError) as error:
        raise _Passing(f"the connection broke: {words(error)}") from error
    except DataError:
        raise
    except ValueError as error:
        raise DataError(f"answered what no server should: {words(error)}") from error
    if start > most:
        part.unlink()  # it is of another file
        raise DataError(f"sends more than {most} bytes")
    if end is not None and start < end:
        raise _Passing(f"the connection ended after {start} of {end} bytes")


class _Redirects(HTTPRedirectHandler):
    """Follows a server that sends us on, where the new address is as safe."""

    def redirect_request(self, *given: Any) -> Request | None:
        _check_scheme(given[-1], "sends us on to")
        return super().redirect_request(*given)


def _check_scheme(url: str, how: str) -> None:
    if urlsplit(url).scheme not in SCHEMES:
        raise DataError(f"{how} {url}, which is not {' or '.join(SCHEMES)}")


def _length(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
