"""The laboratory's part of `first_two`, in a process of its own: digits and peaks, as `racecar run` does them.

python -m benchmarks.laboratory FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    from benchmarks.first_two import jobs
    from racecar_lab.running import runner
    from racecar_lab.running.engines.base import RunOptions
    from racecar_lab.running.work import Maker

    failures = runner.run(
        jobs(), RunOptions(folder=Path(sys.argv[1]), maker=Maker("benchmark", "here")), "here", show=False
    )
    sys.exit(len(failures))


if __name__ == "__main__":
    main()
