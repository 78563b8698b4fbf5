"""Terms and pictures of a loop of one's own, for loggers of both kinds."""

import pytest
import torch
from torch import nn

from racecar import Racecar
from racecar.integrations.term_log import TermLog


class Logger:
    """As Lightning's: it takes scalars, and some take pictures."""

    def __init__(self):
        self.scalars, self.pictures = [], []

    def log_metrics(self, metrics, step):
        self.scalars.append((step, metrics))

    def log_image(self, key, images, step):
        self.pictures.append((step, images[0].shape))


class Writer:
    """As TensorBoard's."""

    def __init__(self):
        self.scalars, self.pictures = [], []

    def add_scalar(self, name, value, step):
        self.scalars.append((step, name, value))

    def add_image(self, name, picture, step):
        self.pictures.append((step, tuple(picture.shape)))


@pytest.fixture
def rr():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(108, 2))
    return Racecar(model, torch.rand(4, 1, 8, 8))


def steps(rr, logger, **how):
    told = []
    with TermLog(rr, logger, **how) as log:
        for _ in range(5):
            x = torch.rand(4, 1, 8, 8)
            _, loss = rr(x)
            log.step(loss, x)
            terms = {f"racecar/{name}": float(term) for name, term in rr.terms.items()}
            told.append({"racecar/loss": float(loss.detach()), **terms})
    return told


def test_scalars_and_pictures(rr):
    """Every so many steps, from the first one on, whichever logger it is: 4 pictures, and below them one row for each
    of two depths."""
    logger = Logger()
    told = steps(rr, logger, every=2, pictures=3)
    assert logger.scalars == [(i, told[i]) for i in (0, 2, 4)]
    assert set(told[0]) == {"racecar/loss", "racecar/0", "racecar/3"}
    assert logger.pictures == [(0, (24, 32, 1)), (3, (24, 32, 1))]
    writer = Writer()
    told = steps(rr, writer, every=4, pictures=3)
    assert writer.scalars == [(i, name, value) for i in (0, 4) for name, value in told[i].items()]
    assert writer.pictures == [(0, (1, 24, 32)), (3, (1, 24, 32))]


def test_tensorboard_by_default(rr, tmp_path):
    steps(rr, None, every=1, folder=str(tmp_path))
    (events,) = tmp_path.glob("events*")
    assert b"racecar/loss" in events.read_bytes()
