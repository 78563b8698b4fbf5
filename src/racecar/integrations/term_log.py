"""Log the racecar loss, its terms and reconstructed pictures to TensorBoard or a logger with Lightning's interface."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from torch import Tensor

from racecar.inspect import invertibility
from racecar.integrations.pictures import grid, log_picture
from racecar.racecar import Racecar
from racecar.support.extras import need


class TermLog:
    """Logs the racecar loss, its terms and reconstructed pictures from a training loop of your own.

        with TermLog(rr, every=50, pictures=500) as log:
            for x, y in batches:
                output, loss = rr(x)
                …
                log.step(loss, x)

    The scalars are "racecar/loss" and, for each term before λ, "racecar/LAYER". Reading them makes the CPU wait for the
    GPU, so they are logged every so many steps only.

    Args:
        rr: the Racecar that is trained.
        logger: one with ``log_metrics(metrics, step)``, as Lightning's loggers have, or a TensorBoard writer. None: a
            new TensorBoard writer.
        every: steps between two logged losses.
        pictures: steps between two logged images of inputs and their reconstructions from each depth; 0: none.
        folder: where a new TensorBoard writer writes; None: its default, a new folder in runs/.
    """

    def __init__(
        self, rr: Racecar, logger: Any = None, *, every: int = 50, pictures: int = 0, folder: str | None = None
    ) -> None:
        self.rr, self.every, self.pictures, self.steps = rr, every, pictures, 0
        self._closes_logger = logger is None
        if logger is None:
            need("tensorboard", "lab")
            from torch.utils.tensorboard import SummaryWriter

            logger = SummaryWriter(folder)
        self.logger = logger

    def step(self, loss: Tensor, x: Tensor | None = None) -> None:
        """Count a training step, and log if it is due; call it after each training step.

        Args:
            loss: the racecar loss, a scalar.
            x: the pictures (N, C, H, W) that the model was called with, to log reconstructions of; None: no pictures.
        """
        if self.steps % self.every == 0:
            scalars = {"racecar/loss": float(loss.detach())}
            scalars |= {f"racecar/{name or 'network'}": float(term) for name, term in self.rr.terms.items()}
            if hasattr(self.logger, "log_metrics"):
                self.logger.log_metrics(scalars, self.steps)
            else:
                for name, value in scalars.items():
                    self.logger.add_scalar(name, value, self.steps)
        if x is not None and self.pictures and self.steps % self.pictures == 0:
            log_picture([self.logger], grid(invertibility(self.rr, x[:8].detach())), self.steps)
        self.steps += 1

    def close(self) -> None:
        """Close the TensorBoard writer if this TermLog made it; a logger that was given stays open."""
        if self._closes_logger:
            self.logger.close()

    def __enter__(self) -> TermLog:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()
