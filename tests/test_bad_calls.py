"""Bad arguments of calls to existing objects: one clear sentence, and the object is not changed."""

from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from torch import nn

from racecar import Every, Racecar, functional
from racecar.inspect import invertibility
from tests.test_bad_input import X, chain, sentence

RR = Racecar(chain(), X)
NAN = float("nan")
TOKENS = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
ON_TOKENS = Racecar(nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)), TOKENS)


def masked(mask: Any) -> Callable[[], Any]:
    return lambda: ON_TOKENS(TOKENS, mask=mask)


def loss(*args: Any, **kwargs: Any) -> Callable[[], Any]:
    return lambda: functional.reverse_loss(chain(), *args, **kwargs)


ONES = torch.ones(2, 3, dtype=torch.bool)
CASES: dict[str, tuple[Callable[[], Any], type[Exception], tuple[str, ...]]] = {
    **{
        f"schedule {times!r:.20}": (lambda times=times: RR.schedule(times), ValueError, ("times", f"{times!r:.20}"))
        for times in (0, -1, NAN, float("inf"), 2.5, "2", None, torch.tensor(2))
    },
    "schedule too large": (lambda: RR.schedule(10**400), ValueError, ("times", "at most")),
    "k too large": (lambda: Every(RR, 10**40), ValueError, ("k must be at most",)),
    **{
        f"schedule on {on!r}": (lambda on=on: RR.schedule(2, on), TypeError, ("on", "True or False", repr(on)))
        for on in ("no", None, 2)
    },
    **{
        f"k {k!r:.20}": (lambda k=k: Every(RR, k), ValueError, ("k must be", f"{k!r:.20}"))
        for k in (0, -1, 2.0, True, "4", None, torch.tensor(2))
    },
    **{
        f"Every of {type(one).__name__}": (lambda one=one: Every(one, 2), TypeError, ("Racecar", type(one).__name__))
        for one in (chain(), 2, None, Racecar)
    },
    **{
        f"state {state!r}": (
            lambda state=state: Every(RR, 2).load_state_dict(state),
            ValueError,
            ("state", repr(state)),
        )
        for state in ({}, None, [1], {"steps": "a"}, {"steps": -1}, {"steps": 1.5}, {"steps": NAN}, {"step": 1})
    },
    "kwargs list": (loss(kwargs=[1]), TypeError, ("kwargs", "dict", "list")),
    "kwargs pairs": (loss((), [("input", X)]), TypeError, ("kwargs", "dict", "list")),
    "kwargs of a number": (loss((), {1: X}), ValueError, ("Sequential", "keywords")),
    "args str": (loss("ab"), TypeError, ("args", "tuple", "str")),
    "args generator": (loss(x for x in [X]), TypeError, ("args", "generator")),
    "args dict": (loss({"input": X}), TypeError, ("args", "dict")),
    "args None": (loss(None), TypeError, ("args", "NoneType")),
    "args number": (loss(3), TypeError, ("args", "int")),
    "args array": (loss(X.numpy()), TypeError, ("args", "ndarray")),
    "mask of 2": (masked(ONES.long() * 2), ValueError, ("mask", "True or 1")),
    "mask of -1": (masked(-ONES.long()), ValueError, ("mask", "True or 1")),
    "mask of 255": (masked(ONES.to(torch.uint8) * 255), ValueError, ("mask", "True or 1")),
    "mask of floats": (masked(ONES.float()), TypeError, ("mask", "torch.float32")),
    "mask of complex": (masked(ONES * 1j), TypeError, ("mask", "torch.complex64")),
    "mask sparse": (masked(ONES.to_sparse()), TypeError, ("mask", "sparse_coo")),
    "mask on meta": (masked(ONES.to("meta")), TypeError, ("mask", "meta")),
    "mask list": (masked([[1, 1, 1], [1, 1, 0]]), TypeError, ("mask", "list")),
    "mask array": (masked(ONES.numpy()), TypeError, ("mask", "ndarray")),
    "sparse later": (lambda: RR(X.to_sparse()), TypeError, ("'0'", "sparse_coo", "to_dense")),
    "sparse, rebuilt": (lambda: RR.reconstruct(X.to_sparse()), TypeError, ("'0'", "sparse_coo")),
    "sparse, looked at": (lambda: invertibility(chain(), X.to_sparse()), (TypeError, ValueError), ("sparse",)),
    "empty later": (lambda: RR(X[:0]), ValueError, ("no samples",)),
}


@pytest.mark.parametrize("name", CASES)
def test_refused_where_it_is_given(name: str):
    call, kind, words = CASES[name]
    with pytest.raises(kind) as caught:
        call()
    message = sentence(caught.value)
    assert [word for word in words if word not in message] == []
    expected = Racecar(chain(), X)(X)[1]
    torch.testing.assert_close(RR(X)[1], expected, rtol=0, atol=0)


GOOD: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a weight of numpy": ({"weight": numpy.float32(0.5)}, {"weight": 0.5}),
    "a flag as a weight": ({"weight": torch.tensor(True)}, {"weight": 1.0}),
    "minus zero": ({"weight": -0.0}, {"weight": 0}),
    "a fraction of numpy": ({"fraction": numpy.float32(0.5)}, {"fraction": 0.5}),
    "a whole number of numpy": ({"fraction": numpy.int64(1)}, {"fraction": 1.0}),
}


@pytest.mark.parametrize("name", GOOD)
def test_numbers_of_other_types_mean_what_they_say(name: str):
    given, plain = GOOD[name]
    torch.testing.assert_close(Racecar(chain(), X, **given)(X)[1], Racecar(chain(), X, **plain)(X)[1])


def test_a_schedule_in_numbers_of_numpy():
    """As steps come out of ``step % k == 0``, and from a checkpoint that holds tensors."""
    rr, every = Racecar(chain(), X), Every(Racecar(chain(), X), numpy.int64(3))
    rr.schedule(numpy.int64(3), numpy.int64(6) % 3 == 0)
    every.load_state_dict({"steps": torch.tensor(6)})
    assert every.step()
    torch.testing.assert_close(every.rr(X)[1], rr(X)[1])
    torch.testing.assert_close(rr(X)[1], 3 * Racecar(chain(), X)(X)[1])


def test_every_takes_a_compiled_racecar():
    rr = Racecar(chain(), X)
    every = Every(torch.compile(rr, backend="eager"), 2)
    assert [every.step(), every.step()] == [True, False]
    assert rr(X)[1] == 0


def test_a_mask_of_0_and_1_under_vmap():
    """The values of a mask are checked only where that costs nothing. (Compiled: reverse/test_mask_arguments.)"""
    expected = ON_TOKENS(TOKENS, mask=ONES)[1]
    losses = torch.func.vmap(lambda mask: ON_TOKENS(TOKENS, mask=mask)[1])(ONES.long().expand(2, 2, 3))
    torch.testing.assert_close(losses, expected.expand(2))
