"""--input: shapes of one or several inputs, and tensors made from them."""

import pytest
import torch

from racecar.cli.target.inputs import Input, arguments, draw, like, parse, with_batch


@pytest.mark.parametrize(
    "text, inputs",
    [
        ("1,3,224,224", (Input((1, 3, 224, 224)),)),
        (" 2, 7 ", (Input((2, 7)),)),
        ("4", (Input((4,)),)),
        ("1,16:1000", (Input((1, 16), 1000),)),
        ("1,3;1,4", (Input((1, 3)), Input((1, 4)))),
        ("x=1,3; y_2=1,4:5", (Input((1, 3), name="x"), Input((1, 4), 5, "y_2"))),
    ],
)
def test_parse(text, inputs):
    assert parse(text) == inputs


@pytest.mark.parametrize(
    "text", ["1,3,0", "1,,3", "1x3", "a", "1,3;", "1,-3", "1,3:0", "=1,3", "1,3:", "٣", "x=1,3;1,4"]
)
def test_refused(text):
    with pytest.raises(ValueError, match="--input"):
        parse(text)


def test_draw_is_seeded_and_in_range():
    inputs = parse("50,4;50,3:6")
    (x, tokens), (same, _), (other, _) = draw(inputs, 0), draw(inputs, 0), draw(inputs, 1)
    assert torch.equal(x, same)
    assert not torch.equal(x, other)
    assert x.min() >= 0
    assert x.max() < 1
    assert tokens.dtype == torch.int64
    assert tokens.unique().tolist() == [0, 1, 2, 3, 4, 5]


def test_forms_of_a_call():
    x, y = torch.zeros(1, 3), torch.ones(1, 4)
    assert arguments(parse("1,3"), [x]) is x
    assert arguments(parse("1,3;1,4"), [x, y]) == (x, y)
    assert arguments(parse("a=1,3;b=1,4"), [x, y]) == {"a": x, "b": y}


def test_like_an_example():
    assert like(torch.zeros(2, 3)) == (Input((2, 3)),)
    assert like((torch.zeros(2, 3), torch.tensor([[4, 2]]))) == (Input((2, 3)), Input((1, 2), 5))
    assert like({"x": torch.zeros(2, 3)}) == (Input((2, 3), name="x"),)
    for nothing in (None, torch.tensor(1.0), (torch.zeros(2), 3), torch.ones(2, dtype=torch.bool)):
        assert like(nothing) == ()


def test_another_batch():
    assert with_batch(parse("1,3;1,4:5"), 8) == (Input((8, 3)), Input((8, 4), 5))
