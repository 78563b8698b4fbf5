"""--data: pictures and arrays become samples of the model's input shape, or are refused in one line."""

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from racecar.cli.inspect.samples import load_samples, picture_shape
from racecar.cli.target.inputs import Input

RGB = Input((1, 3, 4, 6))


def paint(path, size=(6, 4), colour=(255, 0, 51), mode="RGB"):
    path.parent.mkdir(exist_ok=True)
    Image.new("RGB", size, colour).convert(mode).save(path)


def test_a_folder_without_classes(tmp_path):
    for name in ("b.png", "a.PNG", "c.txt"):
        (tmp_path / name).write_text("") if name.endswith("txt") else paint(tmp_path / name)
    samples = load_samples(tmp_path, RGB, 64)
    assert samples.inputs.shape == (2, 3, 4, 6)
    assert samples.labels is None
    torch.testing.assert_close(samples.inputs[0, :, 1, 2], torch.tensor([1.0, 0.0, 0.2]))
    assert samples.source == f"2 pictures from {tmp_path}"


def test_one_folder_per_class_and_a_limit_that_keeps_all_classes(tmp_path):
    for label, name in enumerate(("ape", "bee", "cow")):
        for i in range(3):
            paint(tmp_path / name / f"{i}.png", colour=(85 * label, 0, 0))
    (tmp_path / "none").mkdir()
    samples = load_samples(tmp_path, RGB, 5)
    assert samples.labels.tolist() == [0, 1, 2, 0, 1]
    torch.testing.assert_close(samples.inputs[:, 0, 0, 0], samples.labels / 3)
    assert "5 pictures of 3 classes" in samples.source


def test_classes_of_different_sizes_all_count(tmp_path):
    for name in ("a/1", "b/1", "b/2", "b/3"):
        paint(tmp_path / f"{name}.png")
    assert load_samples(tmp_path, RGB, 9).labels.tolist() == [0, 1, 1, 1]


def test_the_middle_is_cut_out_before_resizing(tmp_path):
    """A wide picture with black sides: only its white middle is left."""
    picture = np.zeros((8, 40), np.uint8)
    picture[:, 13:27] = 255  # 12 are needed
    Image.fromarray(picture).save(tmp_path / "a.png")
    assert load_samples(tmp_path, Input((1, 1, 4, 6)), 1).inputs.min() == 1


def test_a_turned_picture_is_set_upright(tmp_path):
    picture = np.zeros((6, 4), np.uint8)
    picture[0] = 255  # the camera was turned: the stored top row is the right-hand column
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(picture).save(tmp_path / "a.png", exif=exif)
    x = load_samples(tmp_path, Input((1, 1, 4, 6)), 1).inputs[0, 0]
    assert x[:, -1].min() == 1
    assert x[:, :-1].max() == 0


def test_grayscale_and_colour_follow_the_model(tmp_path):
    paint(tmp_path / "a.png")
    gray = load_samples(tmp_path, Input((1, 1, 4, 6)), 1).inputs
    torch.testing.assert_close(gray.mean().item(), 0.299 + 0.114 * 0.2, atol=0.003, rtol=0)
    paint(tmp_path / "a.png", mode="L")
    rgb = load_samples(tmp_path, RGB, 1).inputs
    assert torch.equal(rgb[:, 0], rgb[:, 2])


def test_flattened_pictures(tmp_path):
    paint(tmp_path / "a.png", (9, 9), (51, 51, 51))
    samples = load_samples(tmp_path, Input((1, 16)), 1)
    torch.testing.assert_close(samples.inputs, torch.full((1, 16), 0.2))


@pytest.mark.parametrize(
    "shape, found",
    [
        ((1, 3, 4, 6), (3, 4, 6)),
        ((8, 1, 4, 4), (1, 4, 4)),
        ((1, 8, 4, 4), None),
        ((1, 784), (1, 28, 28)),
        ((1, 3072), (3, 32, 32)),
        ((1, 12), (3, 2, 2)),
        ((1, 1), None),
        ((1, 10), None),
        ((1, 5, 5), None),
    ],
)
def test_picture_shape(shape, found):
    assert picture_shape(shape) == found


def test_arrays(tmp_path):
    x = np.arange(2 * 3 * 4 * 6).reshape(2, 3, 4, 6).astype(np.uint8)
    np.save(tmp_path / "a.npy", x)
    np.savez(tmp_path / "a.npz", images=x.transpose(0, 2, 3, 1), labels=np.array([4, 1], np.uint8))
    save_file({"inputs": torch.from_numpy(x) / 255, "y": torch.tensor([4, 1])}, tmp_path / "a.safetensors")
    for name in ("a.npy", "a.npz", "a.safetensors"):
        samples = load_samples(tmp_path / name, RGB, 64)
        torch.testing.assert_close(samples.inputs, torch.from_numpy(x) / 255)
        assert samples.labels is None if name == "a.npy" else samples.labels.tolist() == [4, 1]
    assert len(load_samples(tmp_path / "a.npy", RGB, 1).inputs) == 1


def test_channels_first_stay_even_where_the_width_is_three(tmp_path):
    x = np.random.default_rng(0).random((2, 3, 3, 3))
    np.save(tmp_path / "a.npy", x)
    assert np.allclose(load_samples(tmp_path / "a.npy", Input((1, 3, 3, 3)), 9).inputs, x)


def test_arrays_without_a_channel_and_for_a_flat_input(tmp_path):
    x = np.random.default_rng(0).random((5, 4, 4))
    np.savez(tmp_path / "a.npz", anything=x)
    assert np.allclose(load_samples(tmp_path / "a.npz", Input((1, 1, 4, 4)), 9).inputs[:, 0], x)
    assert np.allclose(load_samples(tmp_path / "a.npz", Input((1, 16)), 9, torch.float64).inputs, x.reshape(5, 16))


def test_only_the_arrays_that_are_needed_must_be_numbers(tmp_path):
    x = np.random.default_rng(0).random((2, 3, 4, 6)).astype(">f4")
    np.savez(tmp_path / "a.npz", x=x, y=np.array([7, 65535], np.uint16), names=np.array(["a", "b"]))
    samples = load_samples(tmp_path / "a.npz", RGB, 9)
    assert np.array_equal(samples.inputs, x.astype("f4"))
    assert samples.labels.tolist() == [7, 65535]


def test_what_a_sample_shows(tmp_path):
    """The picture shape is known for pictures, also flattened ones, but not for rows of numbers."""
    paint(tmp_path / "folder" / "a.png")
    np.save(tmp_path / "gray.npy", np.zeros((2, 4, 4)))
    np.save(tmp_path / "rows.npy", np.zeros((2, 16)))
    for name, picture in (("folder", (1, 4, 4)), ("gray.npy", (1, 4, 4)), ("rows.npy", None)):
        assert load_samples(tmp_path / name, Input((1, 16)), 9).picture == picture


def test_tokens(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[1, 2, 3]], np.uint8))
    assert load_samples(tmp_path / "a.npy", Input((1, 3), 4), 9).inputs.tolist() == [[1, 2, 3]]
    with pytest.raises(ValueError, match="integers from 0 to 2"):
        load_samples(tmp_path / "a.npy", Input((1, 3), 3), 9)


def test_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.txt").write_text("")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "a.png").write_bytes(b"\x89PNG")
    (tmp_path / "deep").mkdir()
    Image.fromarray(np.full((4, 6), 40000, np.uint16)).save(tmp_path / "deep" / "a.png")
    paint(tmp_path / "good" / "a.png")
    (tmp_path / "bad.npz").write_bytes(b"PK")
    np.save(tmp_path / "objects.npy", np.array([{}]))
    np.savez(tmp_path / "names.npz", a=np.zeros(2), b=np.zeros(2))
    np.savez(tmp_path / "labels.npz", x=np.zeros((2, 3, 4, 6)), y=np.zeros(3, int))
    np.save(tmp_path / "size.npy", np.zeros((2, 3, 6, 4)))
    np.savez(tmp_path / "words.npz", x=np.array(["a", "b"]))
    np.save(tmp_path / "none.npy", np.zeros((0, 3, 4, 6)))
    for name, words in (
        ("nowhere", "there is no folder or file"),
        ("empty", "there are no pictures"),
        ("text.txt", "is not a folder of pictures, nor a file .npy, .npz, .safetensors"),
        ("bad", "a.png cannot be read as a picture"),
        ("deep", "more than 8 bits"),
        ("bad.npz", "cannot be read"),
        ("objects.npy", "cannot be read"),
        ("names.npz", "no array named x or images or inputs, but a, b"),
        ("labels.npz", "one integer per sample, not 3 int64"),
        ("size.npy", "are 2×3×6×4 float64, which does not fit the input 1×3×4×6"),
        ("words.npz", "holds <U1 where numbers are needed"),
        ("none.npy", "no samples"),
    ):
        with pytest.raises(ValueError, match=words):
            load_samples(tmp_path / name, RGB, 9)
    with pytest.raises(ValueError, match="takes none of 1 or 3 channels"):
        load_samples(tmp_path / "good", Input((1, 16), 40), 9)
