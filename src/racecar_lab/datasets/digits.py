"""Forty handwritten digits that come with the package, for quick runs: the first four of each class in MNIST's
training set, in the order of the classes.

Source: MNIST, Y. LeCun and C. Cortes, http://yann.lecun.com/exdb/mnist/. Licence of the two files beside this one:
Creative Commons Attribution-ShareAlike 3.0, as MNIST's own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from racecar_lab.datasets.base import Samples
from racecar_lab.datasets.idx import read_pair

HERE = Path(__file__).parent
DESCRIPTION = "forty digits that come with racecar, to see that it works: no evidence of anything"
"""A description, for reports, of the forty digits that come with the package."""


def describe(config: Any) -> str:
    """The description, for reports, of the data of a configuration: that of the forty digits if its field ``shipped``
    chooses them, otherwise empty."""
    return DESCRIPTION if config.shipped else ""


def load() -> Samples:
    """Read the forty digits: pictures, uint8 (40, 1, 28, 28), and labels, int64 (40,): 0, 0, 0, 0, 1, …, 9."""
    return read_pair(HERE / "digits-images-idx3-ubyte.gz", HERE / "digits-labels-idx1-ubyte.gz")
