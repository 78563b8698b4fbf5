"""A stopped pretraining resumes bit for bit; files that are no checkpoint of it are refused."""

import functools
import hashlib
import io
import os
import random
import signal
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from racecar.pretrain import greedy
from racecar.pretrain.store import FORMAT
from tests.other_process import started
from tests.pretrain.common import Interrupted, State, Stop, deep, mlp, rows, same, state

# --- going on after a stop ----------------------------------------------------------------------------------------


def shuffled(**options: Any) -> DataLoader:
    data = torch.randn(20, 6, generator=torch.Generator().manual_seed(5))
    return DataLoader(TensorDataset(data, torch.arange(20)), batch_size=6, shuffle=True, **options)


SETTINGS = {"epochs": 2, "lr": 1e-2}


@functools.cache
def undisturbed() -> tuple[State, list[tuple[Any, ...]], Tensor]:
    """A run that nothing stops."""
    return trained(shuffled())


def trained(loader: Iterable[Any], path: Path | None = None) -> tuple[State, list[tuple[Any, ...]], Tensor]:
    """Weights, report and the next random number of a run from the usual start."""
    model = deep()
    torch.manual_seed(7)
    done = greedy(model, loader, checkpoint=path, **SETTINGS)
    return state(model), [(one.layer, one.first, one.last, one.steps) for one in done], torch.rand(3)


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


# Four batches in an epoch, eight for a layer, and one for the look at an example.
SECOND_LAYER = 1 + 8 + 3


@pytest.mark.parametrize("after", [1 + 2, SECOND_LAYER, 1 + 31])
def test_a_stopped_run_goes_on_as_if_nothing_had_happened(tmp_path: Path, after: int):
    truth = undisturbed()
    path = tmp_path / "state"
    with pytest.raises(Stop):
        trained(Interrupted(shuffled(), after), path)
    assert [one.name for one in tmp_path.iterdir()] == (["state"] if after > 8 else [])
    weights, report, number = trained(shuffled(), path)
    assert same(weights, truth[0])
    assert report == truth[1]
    assert torch.equal(number, truth[2])
    assert [one.name for one in tmp_path.iterdir()] == ["state"]


def killed(path: Path) -> None:
    torch.set_num_threads(1)
    trained(Interrupted(shuffled(), SECOND_LAYER, kill), path)


@pytest.mark.forks
def test_a_killed_process_goes_on_as_if_nothing_had_happened(tmp_path: Path):
    path = tmp_path / "state"
    process = started(killed, path)
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    assert [one["layer"] for one in torch.load(path, weights_only=True)["done"]] == ["0"]
    assert same(trained(shuffled(), path)[0], undisturbed()[0])


def test_a_loader_with_random_numbers_of_its_own(tmp_path: Path):
    """`generator=` is the usual way to make a loader's order repeatable."""

    def loader() -> DataLoader:
        return shuffled(generator=torch.Generator().manual_seed(11))

    with pytest.raises(Stop):
        trained(Interrupted(loader(), SECOND_LAYER), tmp_path / "state")
    assert same(trained(loader(), tmp_path / "state")[0], trained(loader())[0])


def test_random_numbers_of_python(tmp_path: Path):
    """Augmentations often draw from `random`."""

    class Noisy:
        def __iter__(self) -> Iterator[Tensor]:
            for x in rows(4):
                yield x.float() * random.uniform(0.5, 1.5)

    def run(loader: Iterable[Any], path: Path | None) -> State:
        random.seed(2)
        return trained(loader, path)[0]

    with pytest.raises(Stop):
        run(Interrupted(Noisy(), SECOND_LAYER), tmp_path / "state")
    assert same(run(Noisy(), tmp_path / "state"), run(Noisy(), None))


def test_a_finished_run_is_not_run_again(tmp_path: Path):
    path = tmp_path / "deep" / "state"
    truth = trained(shuffled(), path)
    content = path.read_bytes()
    weights, report, number = trained(Interrupted(shuffled(), 1), path)  # it may look at an example, no more
    assert same(weights, truth[0])
    assert report == truth[1]
    assert torch.equal(number, truth[2])
    assert path.read_bytes() == content


def test_a_stop_while_the_checkpoint_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path, save, saves = tmp_path / "state", torch.save, []

    def half(held, file):
        saves.append(held)
        buffer = io.BytesIO()
        save(held, buffer)
        file.write(buffer.getvalue()[: 1000 if len(saves) == 2 else None])
        if len(saves) == 2:
            raise Stop

    monkeypatch.setattr(torch, "save", half)
    with pytest.raises(Stop):
        trained(shuffled(), path)
    monkeypatch.undo()
    assert [one.name for one in tmp_path.iterdir()] == ["state"]
    assert [one["layer"] for one in torch.load(path, weights_only=True)["done"]] == ["0"]
    assert same(trained(shuffled(), path)[0], undisturbed()[0])


def test_more_layers_later(tmp_path: Path):
    """Layers in the checkpoint are kept, the others are trained."""
    model, truth, path = mlp(), mlp(), tmp_path / "state"
    greedy(model, rows(), layers="0", checkpoint=path)
    done = greedy(model, rows(), checkpoint=path)
    greedy(truth, rows())
    assert [one.layer for one in done] == ["0", "2", "4"]
    assert same(state(model), state(truth))


# --- files that are no checkpoint of this run ---------------------------------------------------------------------


def saved(content: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue() + hashlib.sha256(buffer.getvalue()).digest()


def held(tmp_path: Path, **options: Any) -> dict[str, Any]:
    greedy(mlp(), rows(), checkpoint=tmp_path / "good", **options)
    return torch.load(tmp_path / "good", weights_only=True)


def flipped(content: bytes) -> bytes:
    """The sign of a weight, somewhere in the file."""
    where = content.index(torch.load(io.BytesIO(content))["model"]["2.weight"].numpy().tobytes()) + 7
    return content[:where] + bytes([content[where] ^ 0x80]) + content[where + 1 :]


def without(content: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: one for name, one in content.items() if name != key}


FOREIGN: dict[str, Callable[[dict[str, Any]], bytes]] = {
    "text": lambda held: b"hello",
    "empty": lambda held: b"",
    "half": lambda held: saved(held)[: len(saved(held)) // 2],
    "without a checksum": lambda held: saved(held)[:-32],
    "a bit has flipped": lambda held: flipped(saved(held)),
    "another format": lambda held: saved({**held, "format": 999}),
    "no model": lambda held: saved(without(held, "model")),
    "a wrong random state": lambda held: saved({**held, "random": torch.zeros(3)}),
    "other reports": lambda held: saved({**held, "done": [{"layer": "0"}]}),
    "another model": lambda held: saved({**held, "model": state(deep())}),
    "a longer model": lambda held: saved({**held, "model": {**held["model"], "6.weight": torch.zeros(3, 3)}}),
    "a layer that is not there": lambda held: saved({**held, "done": [{**held["done"][0], "layer": "nowhere"}]}),
}


def refused(path: Path, content: bytes, **options: Any) -> str:
    """The one line that a file is refused with; the file, the model and the random state stay as they are."""
    path.write_bytes(content)
    model = mlp()
    before, random_state, files = state(model), torch.get_rng_state(), sorted(path.parent.iterdir())
    with pytest.raises(ValueError, match=r"^[^\n]+\Z") as caught:
        greedy(model, rows(), checkpoint=path, **options)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == content
    assert sorted(path.parent.iterdir()) == files
    assert same(before, state(model))
    assert torch.equal(torch.get_rng_state(), random_state)
    assert all(one.requires_grad for one in model.parameters())
    return str(caught.value)


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_foreign_file_is_refused_and_left_alone(tmp_path: Path, kind: str):
    refused(tmp_path / "state", FOREIGN[kind](held(tmp_path)))


@pytest.mark.parametrize("change", [{"epochs": 2}, {"lr": 1e-2}, {"scale": "sum"}, {"fraction": 0.5}])
def test_other_settings_are_refused(tmp_path: Path, change: dict[str, Any]):
    (name,) = change
    assert name in refused(tmp_path / "state", saved(held(tmp_path)), **change)


def test_a_folder_is_no_checkpoint(tmp_path: Path):
    (tmp_path / "state").mkdir()
    with pytest.raises((ValueError, OSError)):
        greedy(mlp(), rows(), checkpoint=tmp_path / "state")
    assert not list((tmp_path / "state").iterdir())


def test_no_code_is_run_from_a_checkpoint(tmp_path: Path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "evil"),)

    (tmp_path / "state").write_bytes(saved({"format": FORMAT, "settings": Evil()}))
    with pytest.raises(ValueError, match="no pretraining checkpoint"):
        greedy(mlp(), rows(), checkpoint=tmp_path / "state")
    assert not (tmp_path / "evil").exists()
