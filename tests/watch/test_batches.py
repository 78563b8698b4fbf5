"""A batch of a DataLoader where example inputs are expected: its input is taken, or the message says how to."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from racecar import Racecar, functional
from racecar.inspect import activations, information_plane, invertibility, leakage, singular_vectors
from racecar.inspect.information_plane import bin_sweep

X, Y = torch.rand(6, 4, generator=torch.Generator().manual_seed(0)), torch.arange(6) % 2
BATCH = next(iter(DataLoader(TensorDataset(X, Y), 6)))
NET = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))


class Net(nn.Module):
    """A network whose forward has the given parameters, of which it uses the first."""

    def __init__(self, parameters):
        super().__init__()
        self.layer = nn.Linear(4, 3)
        x, names = "xs[0]" if parameters == "*xs" else "x", {"torch": torch}
        exec(f"def forward(self, {parameters}): return torch.tanh(self.layer({x}))", names)
        self.forward = names["forward"].__get__(self)


@pytest.mark.parametrize("parameters", ["x", "x, mask=None", "x=None", "x, /", "x, *, scale=1", "x, **more"])
def test_one_argument(parameters):
    net = Net(parameters)
    rr = Racecar(net, BATCH)
    _, loss = rr(BATCH[0])
    torch.testing.assert_close(loss, Racecar(net, X)(X)[1], rtol=0, atol=0)
    assert str(rr.plan) == str(Racecar(net, X).plan)
    Racecar(net, [X])


@pytest.mark.parametrize("parameters", ["x, y", "x, *rest", "*xs", "x=None, y=None", "x, *, y"])
def test_another_number_of_arguments(parameters):
    net = Net(parameters)
    for look in (Racecar, activations, invertibility):
        with pytest.raises(TypeError, match=r"example_inputs is a list.*give batch\[0\]"):
            look(net, BATCH)
    if parameters != "x, *, y":
        Racecar(net, tuple(BATCH))  # which means what it meant


@pytest.mark.parametrize("batch", [[], [{"x": X}, Y], [[X], Y]], ids=["empty", "dict", "list"])
def test_no_tensor_comes_first(batch):
    with pytest.raises(TypeError, match=r"give batch\[0\]"):
        Racecar(NET, batch)


@pytest.mark.parametrize("call", [Racecar, activations, functional.reverse_loss], ids=lambda call: call.__name__)
def test_a_tuple_holds_more_than_the_model_takes(call):
    with pytest.raises(ValueError, match=r"Sequential does not accept.*give batch\[0\]"):
        call(NET, (X, Y))
    with pytest.raises(ValueError, match="shapes cannot be multiplied") as caught:
        call(NET, (X[:, :2],))
    assert "batch[0]" not in str(caught.value)


@pytest.mark.filterwarnings("ignore::racecar.inspect.information_plane.SaturationWarning")
def test_looks_take_the_same():
    for look in (
        lambda given: [one.tensor for one in activations(NET, given)],
        lambda given: invertibility(NET, given).to_dict(),
        lambda given: leakage(NET, given).to_dict(),
        lambda given: information_plane(NET, given, Y).to_dict(),
        lambda given: bin_sweep(Racecar(NET, given), given, Y, bins=[3])[3].to_dict(),
        lambda given: singular_vectors(NET, "0", data=given).to_dict(),
    ):
        assert str(look([X, Y])) == str(look(X))
    assert information_plane(NET, [torch.ones(6, 4), Y], Y).inputs == 1  # labels are no inputs
