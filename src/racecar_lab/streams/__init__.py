"""Methods that keep nets able to learn, for the experiment on streams of tasks: many nets of one method at once.

    from racecar_lab.streams import DESIGNS, METHODS, StreamStack

    method = METHODS["linear"]                              # 28 of them
    settings = method.settings("adam")                      # 20 (learning rate, strength, second number)
    nets = StreamStack(method, DESIGNS["mlp3"], (1, 28, 28), 10, seeds=[0] * 20, settings=settings, device="cuda")
    for x, y, test in stream:                               # x (batches, 20, N, 1, 28, 28), y (batches, 20, N)
        nets.new_task(zero_head=False)
        learned = [nets.step(a, b) for a, b in zip(x, y)]   # each (20, 2): loss and accuracy before the step
        accuracy = (nets.outputs(test.x).argmax(2) == test.y).float().mean(1)
        shown = nets.metrics(test.x)                        # dead units, effective rank, weight norm, linear error

A net depends on its seed, its setting and its batches alone, not on the nets beside it. ``step`` does not wait for the
device: results are tensors there. ``dataclasses.replace(method, norm="batch")`` is a method on a net with batch norm.
``along="earlier"`` needs ``step(x, y, earlier)``, samples of an earlier task. ``state_dict`` is for checkpoints.

Nets are in ``nets``, penalties in ``penalties``, what changes parameters in ``updates``, ``resets`` and
``continual_backprop``, the paper's own loss in ``reverse``, random numbers in ``draws``.
"""

from racecar_lab.streams.method import Method, MethodSetting
from racecar_lab.streams.methods import METHODS
from racecar_lab.streams.nets import DESIGNS, Design
from racecar_lab.streams.stack import StreamStack

__all__ = ["DESIGNS", "METHODS", "Design", "Method", "MethodSetting", "StreamStack"]
