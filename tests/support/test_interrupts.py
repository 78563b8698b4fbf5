"""A signal that comes while something must not be cut off. (Commands that are interrupted: lab/running/test_resume.)"""

import os
import signal

import pytest

from racecar.support import interrupts


@pytest.mark.forks
def test_deferred():
    """What is begun is done, also inside of another; then comes the interrupt, at once."""
    reader, writer = os.pipe()
    if not (child := os.fork()):
        try:
            interrupts.listen()
            with interrupts.deferred():
                with interrupts.deferred():
                    os.kill(os.getpid(), signal.SIGTERM)
                    sum(range(10**6))
                os.write(writer, b"done")
            os.write(writer, b", and more")
        except KeyboardInterrupt:
            os.write(writer, b", then interrupted")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 100) == b"done, then interrupted"
