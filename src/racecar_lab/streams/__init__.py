"""Training methods that keep nets able to learn one task after another; many nets of one method train at once.

    from racecar_lab.streams import DESIGNS, METHODS, StreamStack

    method = METHODS["linear"]                              # one of 28
    settings = method.settings("adam")                      # 20 of (learning rate, weight, second number)
    nets = StreamStack(method, DESIGNS["mlp3"], (1, 28, 28), 10, seeds=[0] * 20, settings=settings, device="cuda")
    for x, y, test in stream:                               # x (batches, 20, N, 1, 28, 28), y (batches, 20, N)
        nets.new_task(zero_head=False)
        history = [nets.step(a, b) for a, b in zip(x, y)]   # each (20, 2): loss and accuracy before the step
        accuracy = (nets.outputs(test.x).argmax(2) == test.y).float().mean(1)
        measures = nets.metrics(test.x)                     # dead units, effective rank, weight norm, linear error

The weight is the method's main number: the factor λ of a penalty, or, for a method without λ, what takes its place,
such as ReDo's threshold or the replacement rate of continual backprop. Few methods have a second number.

A net depends on its seed, its setting and its batches alone, not on the other nets of the stack. ``step`` does not wait
for the device: its results are tensors on that device. ``dataclasses.replace(method, norm="batch")`` is the same method
on a net with batch norm. A method with ``h_from="earlier"`` needs ``step(x, y, earlier)`` with samples of an earlier
task. ``state_dict`` is for checkpoints.

The networks are in ``nets``, the penalties in ``penalties``, the optimisers and changes of parameters in ``updates``,
``resets`` and ``continual_backprop``, the paper's reverse loss in ``reverse``, random numbers in ``draws``.
"""

from racecar_lab.streams.method import Method, MethodSetting
from racecar_lab.streams.methods import METHODS
from racecar_lab.streams.nets import DESIGNS, Design
from racecar_lab.streams.stack import StreamStack

__all__ = ["DESIGNS", "METHODS", "Design", "Method", "MethodSetting", "StreamStack"]
