"""LPIPS compared with a forward pass written in NumPy float64, with random weights in the published file layout."""

import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from racecar.inspect.lpips import Lpips

ALEXNET = {"features.0": (4, 3, 11), "features.3": (5, 4, 5), "features.6": (6, 5, 3), "features.8": (5, 6, 3)}
ALEXNET |= {"features.10": (4, 5, 3)}
SQUEEZENET = {"features.0": (4, 3, 3)}
SQUEEZE = {3: (4, 2, 3), 4: (6, 2, 3), 6: (6, 2, 4), 7: (8, 3, 4), 9: (8, 2, 5), 10: (10, 3, 5), 11: (10, 3, 6)}
SQUEEZE |= {12: (12, 3, 6)}  # Fire module → channels in, squeezed, of each half out
for place, (before, squeezed, after) in SQUEEZE.items():
    SQUEEZENET[f"features.{place}.squeeze"] = (squeezed, before, 1)
    SQUEEZENET[f"features.{place}.expand1x1"] = (after, squeezed, 1)
    SQUEEZENET[f"features.{place}.expand3x3"] = (after, squeezed, 3)
CONVOLUTIONS = {"AlexNet": ALEXNET, "SqueezeNet": SQUEEZENET}
HEADS = {"AlexNet": (4, 5, 6, 5, 4), "SqueezeNet": (4, 6, 8, 10, 10, 12, 12)}
SMALLEST = {"AlexNet": 31, "SqueezeNet": 17}
NETS = list(CONVOLUTIONS)


def random_weights(net, seed=0):
    rng = np.random.default_rng(seed)
    arrays = {}
    for name, (out, into, side) in CONVOLUTIONS[net].items():
        arrays[f"{name}.weight"] = rng.normal(size=(out, into, side, side)) * (2 / (into * side * side)) ** 0.5
        arrays[f"{name}.bias"] = rng.normal(size=out) * 0.1
    for i, channels in enumerate(HEADS[net]):
        arrays[f"lin{i}.model.1.weight"] = rng.random((1, channels, 1, 1))
    return {key: value.astype(np.float32) for key, value in arrays.items()}


def save(path, arrays):
    np.savez(path, **arrays)
    return path


def load(net):
    return Lpips({key: torch.from_numpy(value) for key, value in random_weights(net).items()})


def pictures(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2 - 1


# The truth, in NumPy: one picture (C, H, W) at a time.


def conv(arrays, name, x, stride=1, padding=0):
    weight, bias = arrays[f"{name}.weight"].astype(np.float64), arrays[f"{name}.bias"].astype(np.float64)
    side = weight.shape[2]
    x = np.pad(x, ((0, 0), (padding, padding), (padding, padding)))
    rows, columns = ((size - side) // stride + 1 for size in x.shape[1:])
    out = np.empty((len(weight), rows, columns))
    for i in range(rows):
        for j in range(columns):
            patch = x[:, i * stride : i * stride + side, j * stride : j * stride + side]
            out[:, i, j] = (weight * patch).sum((1, 2, 3)) + bias
    return np.maximum(out, 0)


def pool(x, ceil):
    starts = []
    for size in x.shape[1:]:
        fits = range(0, size - 2, 2)
        # With ceil_mode a last window may hang over the edge, if a pixel is left that no window saw.
        starts.append([*fits, *([len(fits) * 2] if ceil and (not fits or fits[-1] + 3 < size) else [])])
    return np.array([[x[:, i : i + 3, j : j + 3].max((1, 2)) for j in starts[1]] for i in starts[0]]).transpose(2, 0, 1)


def alexnet(arrays, x):
    one = conv(arrays, "features.0", x, 4, 2)
    two = conv(arrays, "features.3", pool(one, False), 1, 2)
    three = conv(arrays, "features.6", pool(two, False), 1, 1)
    four = conv(arrays, "features.8", three, 1, 1)
    return [one, two, three, four, conv(arrays, "features.10", four, 1, 1)]


def squeezenet(arrays, x):
    def fire(place, x):
        x = conv(arrays, f"features.{place}.squeeze", x)
        halves = conv(arrays, f"features.{place}.expand1x1", x), conv(arrays, f"features.{place}.expand3x3", x, 1, 1)
        return np.concatenate(halves)

    one = conv(arrays, "features.0", x, 2)
    two = fire(4, fire(3, pool(one, True)))
    three = fire(7, fire(6, pool(two, True)))
    four = fire(9, pool(three, True))
    five = fire(10, four)
    six = fire(11, five)
    return [one, two, three, four, five, six, fire(12, six)]


def truth(net, arrays, a, b):
    forward = alexnet if net == "AlexNet" else squeezenet
    features = []
    for x in (a, b):
        x = np.broadcast_to(x, (3, *x.shape[1:]))
        shift, scale = np.array([-0.030, -0.088, -0.188]), np.array([0.458, 0.448, 0.450])
        features.append(forward(arrays, (x - shift[:, None, None]) / scale[:, None, None]))
    total = 0.0
    for i, (f, g) in enumerate(zip(*features, strict=True)):
        head = arrays[f"lin{i}.model.1.weight"].reshape(-1).astype(np.float64)
        at = []
        for row in range(f.shape[1]):
            for column in range(f.shape[2]):
                p, q = f[:, row, column], g[:, row, column]
                p, q = p / (np.sqrt((p**2).sum()) + 1e-10), q / (np.sqrt((q**2).sum()) + 1e-10)
                at.append((head * (p - q) ** 2).sum())
        total += np.mean(at)
    return total


@pytest.mark.parametrize("net", NETS)
@given(channels=st.sampled_from([1, 3]), rows=st.integers(0, 12), columns=st.integers(0, 12), seed=st.integers(0, 99))
def test_equals_numpy(net, channels, rows, columns, seed):
    side = SMALLEST[net]
    a, b = pictures(2, 1, channels, side + rows, side + columns, seed=seed)
    arrays = random_weights(net, seed)
    lpips = Lpips({key: torch.from_numpy(value) for key, value in arrays.items()})
    found = lpips(a, b)
    assert found.shape == (1,)
    np.testing.assert_allclose(found, [truth(net, arrays, a[0].numpy(), b[0].numpy())], rtol=1e-9)


@pytest.mark.parametrize("net", NETS)
def test_both_files_give_the_same_distance(net, tmp_path):
    arrays = random_weights(net) | {"classifier.1.weight": np.zeros((2, 2))}  # what is not needed does no harm
    torch_file = tmp_path / "weights.safetensors"
    pytest.importorskip("safetensors.torch").save_file(
        {key: torch.from_numpy(value) for key, value in arrays.items()}, torch_file
    )
    a, b = pictures(2, 2, 3, 40, 33)
    for path in (save(tmp_path / "weights.npz", arrays), str(torch_file)):
        lpips = Lpips.load(path)
        assert repr(lpips) == f"Lpips({net})"
        assert torch.equal(lpips(a, b), load(net)(a, b))


@pytest.mark.parametrize("net", NETS)
def test_identities(net):
    lpips = load(net)
    a, b = pictures(2, 3, 1, 40, 40)
    assert torch.equal(lpips(a, a), torch.zeros(3).double())
    assert (lpips(a, b) > 0).all()
    torch.testing.assert_close(lpips(a, b), lpips(b, a))
    torch.testing.assert_close(lpips(a, b), lpips(a.expand(-1, 3, -1, -1), b.expand(-1, 3, -1, -1)))
    assert lpips(a.half(), b.half()).dtype == torch.float32
    torch.testing.assert_close(lpips(a.float(), b.float()).double(), lpips(a, b), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("net", NETS)
def test_pairwise_equals_one_by_one(net):
    lpips = load(net)
    a, b = pictures(5, 1, 33, 40), pictures(3, 3, 33, 40, seed=1)  # grey and colour may be mixed
    b[0] = a[0]
    expected = torch.stack([lpips(a.expand(-1, 3, -1, -1), one.expand(5, -1, -1, -1)) for one in b], 1)
    for batch in (1, 2, 128):
        torch.testing.assert_close(lpips.pairwise(a, b, batch=batch), expected, rtol=1e-9, atol=1e-12)
    single = lpips.pairwise(a.float(), b.float())
    torch.testing.assert_close(single.double(), expected, rtol=0, atol=1e-5)
    many = pictures(20, 1, 33, 40).float()
    assert (lpips.pairwise(many, many) >= 0).all()


@pytest.mark.parametrize("net", NETS)
def test_pairwise_sees_every_picture_once(net, monkeypatch):
    seen = []
    features = Lpips.features
    monkeypatch.setattr(Lpips, "features", lambda self, x: (seen.append(len(x)), features(self, x))[1])
    lpips = load(net)
    seen.clear()
    lpips.pairwise(pictures(9, 1, 31, 31), pictures(4, 1, 31, 31), batch=4)
    assert sorted(seen) == [1, 4, 4, 4]


@pytest.mark.parametrize("net", NETS)
def test_gradient(net):
    lpips, side = load(net), SMALLEST[net]
    a, b = pictures(2, 1, 1, side, side)
    assert torch.autograd.gradcheck(
        lpips, (a.requires_grad_(), b.requires_grad_()), eps=1e-7, atol=1e-4, fast_mode=True
    )


def test_gradient_where_nothing_is_active():
    arrays = random_weights("AlexNet")
    arrays["features.0.bias"][:] = -1000
    lpips = Lpips({key: torch.from_numpy(value) for key, value in arrays.items()})
    a = pictures(1, 3, 31, 31).requires_grad_()
    lpips(a, pictures(1, 3, 31, 31, seed=1)).sum().backward()
    assert torch.equal(a.grad, torch.zeros_like(a))


@pytest.mark.parametrize("net", NETS)
def test_the_smallest_picture(net):
    lpips, side = load(net), SMALLEST[net]
    assert lpips(pictures(1, 1, side, side), pictures(1, 1, side, side)).isfinite()
    for shape in ((side - 1, side), (side, side - 1)):
        with pytest.raises(ValueError, match=f"{net} needs pictures of at least {side} × {side}"):
            lpips(pictures(1, 1, *shape), pictures(1, 1, *shape))


@pytest.mark.parametrize(
    "a, b, message",
    [
        ((2, 3, 40, 40), (1, 3, 40, 40), "same shape"),
        ((2, 2, 40, 40), (2, 2, 40, 40), r"\(N, 3, H, W\) or \(N, 1, H, W\)"),
        ((3, 40, 40), (3, 40, 40), r"\(N, 3, H, W\) or \(N, 1, H, W\)"),
    ],
)
def test_bad_pictures(a, b, message):
    with pytest.raises(ValueError, match=message):
        load("AlexNet")(torch.rand(a), torch.rand(b))


def test_bad_pictures_in_pairs():
    with pytest.raises(ValueError, match="same size"):
        load("AlexNet").pairwise(torch.rand(2, 3, 40, 40), torch.rand(3, 3, 40, 41))


def without(*keys):
    return lambda arrays: [arrays.pop(key) for key in keys]


def instead(key, value):
    return lambda arrays: arrays.update({key: value})


@pytest.mark.parametrize(
    "net, change, message",
    [
        ("AlexNet", without("features.3.weight"), "neither features.3.weight (AlexNet) nor"),
        ("AlexNet", without("lin4.model.1.weight"), "AlexNet: lin4.model.1.weight missing"),
        ("SqueezeNet", without("features.12.squeeze.bias"), "SqueezeNet: features.12.squeeze.bias missing"),
        ("SqueezeNet", without(*(f"lin{i}.model.1.weight" for i in range(7))), "and 4 more missing"),
        ("AlexNet", instead("features.0.weight", np.zeros((4, 3, 3, 3))), "features.0.weight has shape (4, 3, 3, 3)"),
        ("AlexNet", instead("features.0.bias", np.zeros((4, 1))), "features.0.bias has shape (4, 1)"),
        ("AlexNet", instead("lin0.model.1.weight", np.zeros((1, 3, 1, 1))), "do not fit"),
        ("AlexNet", instead("lin0.model.1.weight", np.zeros((1, 1, 1, 1))), "do not fit"),
        ("AlexNet", instead("features.8.weight", np.zeros((5, 7, 3, 3))), "do not fit"),
        ("AlexNet", instead("features.0.weight", np.zeros((4, 1, 11, 11))), "do not fit"),
        ("AlexNet", instead("features.3.bias", np.full(5, np.nan)), "features.3.bias has NaN"),
        ("AlexNet", instead("lin1.model.1.weight", -np.ones((1, 5, 1, 1))), "negative"),
        ("AlexNet", instead("features.0.bias", np.array([object()])), "cannot be read"),
        ("AlexNet", instead("features.0.bias", np.array(["a"])), "cannot be read"),
    ],
)
def test_wrong_weights(net, change, message, tmp_path):
    arrays = random_weights(net)
    change(arrays)
    path = save(tmp_path / "weights.npz", arrays)
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        Lpips.load(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["weights.npz", "weights.safetensors", "weights.npy", "weights"])
def test_not_a_weights_file(name, tmp_path):
    path = tmp_path / name
    for content in (b"", b"nothing of the kind", b"PK\x03\x04 cut off"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=f"{name} cannot be read"):
            Lpips.load(path)
    if name.endswith(".npy"):
        np.save(path, np.zeros(3))
        with pytest.raises(ValueError, match="cannot be read"):
            Lpips.load(path)
    with pytest.raises(FileNotFoundError, match="absent"):
        Lpips.load(tmp_path / "absent.npz")
