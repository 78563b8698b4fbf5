"""Write the generators of disentangle to files of their own, which ``racecar inspect`` takes, from a results folder:

python -m benchmarks.generators out/disentangle-one-hot-norm-true out/generators
"""

from __future__ import annotations

import argparse
from pathlib import Path

from racecar_lab.experiments.disentangle.generators import write_generators


def main() -> None:
    """Write the generators of one seed and print the paths of the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="folder that racecar run disentangle --out wrote")
    parser.add_argument("folder", type=Path, help="folder for the files")
    parser.add_argument("--seed", type=int, default=0, help="seed of the runs (default 0)")
    arguments = parser.parse_args()
    for path in write_generators(arguments.results, arguments.folder, arguments.seed):
        print(path)


if __name__ == "__main__":
    main()
