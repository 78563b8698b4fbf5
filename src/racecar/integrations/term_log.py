"""The racecar loss, its terms and pictures of them, for TensorBoard or any logger as Lightning's are."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from torch import Tensor

from racecar.inspect import invertibility
from racecar.integrations.pictures import grid, log_picture
from racecar.racecar import Racecar
from racecar.support.extras import need


class TermLog:
    """Log a training that is a loop of your own.

        with TermLog(rr, every=50, pictures=500) as log:
            for x, y in batches:
                output, loss = rr(x)
                …
                log.step(loss, x)

    Scalars are "racecar/loss" and "racecar/LAYER", the terms before λ. Reading them waits for a GPU: ``every`` spares
    it.

    Args:
        rr: what is trained.
        logger: one with ``log_metrics(metrics, step)``, as Lightning's loggers have; or a TensorBoard writer. Without
            it a new one, which writes into ``folder``.
        every: steps between two looks.
        pictures: steps between two pictures of inputs rebuilt from each depth; 0: none.
        folder: TensorBoard's; its own choice, below runs/, without it.
    """

    def __init__(
        self, rr: Racecar, logger: Any = None, *, every: int = 50, pictures: int = 0, folder: str | None = None
    ) -> None:
        self.rr, self.every, self.pictures, self.steps = rr, every, pictures, 0
        self._own = logger is None
        if logger is None:
            need("tensorboard", "lab")
            from torch.utils.tensorboard import SummaryWriter

            logger = SummaryWriter(folder)
        self.logger = logger

    def step(self, loss: Tensor, x: Tensor | None = None) -> None:
        """After each training step.

        Args:
            loss: the racecar loss, a scalar.
            x: pictures (N, C, H, W) that the model was called with, if some are to be shown.
        """
        if self.steps % self.every == 0:
            found = {"racecar/loss": float(loss.detach())}
            found |= {f"racecar/{name or 'network'}": float(term) for name, term in self.rr.terms.items()}
            if hasattr(self.logger, "log_metrics"):
                self.logger.log_metrics(found, self.steps)
            else:
                for name, value in found.items():
                    self.logger.add_scalar(name, value, self.steps)
        if x is not None and self.pictures and self.steps % self.pictures == 0:
            log_picture([self.logger], grid(invertibility(self.rr, x[:8].detach())), self.steps)
        self.steps += 1

    def close(self) -> None:
        """A writer of one's own is closed; a given one is left to whoever gave it."""
        if self._own:
            self.logger.close()

    def __enter__(self) -> TermLog:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()
