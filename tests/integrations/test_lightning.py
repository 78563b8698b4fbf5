"""Trainings by Lightning with the callback equal the same trainings by hand."""

import copy
import functools
import importlib
import warnings

import pytest
import torch
from torch import nn

from racecar import Racecar
from racecar.inspect import plasticity

STEPS, EPOCHS = 4, 3


@functools.cache
def lightning():
    """The file beside this one, and with it Lightning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("tests.integrations.lightning_cases")


@pytest.fixture(scope="module")
def data():
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(8 * STEPS, 2, 3, generator=generator)
    return torch.utils.data.TensorDataset(x, (x.sum((1, 2)) > 3).long())


def trainer(folder, callback, epochs=EPOCHS, logger=False, **more):
    return lightning().pl.Trainer(
        max_epochs=epochs, accelerator="cpu", devices=1, callbacks=callback, default_root_dir=folder, logger=logger,
        enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False, **more,
    )  # fmt: skip


def fit(folder, module, data, callback, epochs=EPOCHS, **more):
    loader = torch.utils.data.DataLoader(data, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one = trainer(folder, callback, epochs, **more)
        one.fit(module, loader, loader)
    return one


def by_hand(data, weight, until=None, accumulate=1, amp=False):
    module = lightning().Plain()
    net = module.model
    rr, optimiser = Racecar(net, data.tensors[0][:8]), torch.optim.SGD(net.parameters(), 0.1)
    for epoch in range(EPOCHS):
        net.train()
        for i, (x, y) in enumerate(zip(*(one.split(8) for one in data.tensors), strict=True)):
            rr.weight = weight if until is None or epoch < until else 0.0
            with torch.autocast("cpu", torch.bfloat16, amp, cache_enabled=False):  # as Lightning has it
                output, loss = rr(x)
                loss = nn.functional.cross_entropy(output, y) + loss
            (loss / accumulate).backward()
            if (i + 1) % accumulate == 0:
                optimiser.step()
                optimiser.zero_grad()
    return net


@pytest.mark.parametrize(
    "made, how, more",
    [
        ({}, {}, {}),
        ({"calls": "self", "result": "dict"}, {"until": 2}, {}),
        ({"manual": True}, {}, {}),
        ({"manual": True}, {}, {"precision": "bf16-mixed"}),
        ({}, {}, {"accumulate_grad_batches": 2, "precision": "bf16-mixed"}),
        ({}, {}, {"accumulate_grad_batches": 2}),
    ],
)
def test_as_by_hand(tmp_path, data, made, how, more):
    module, callback = lightning().Plain(**made), lightning().RacecarCallback(weight=0.5, **how)
    names = list(module.state_dict())
    fitted = fit(tmp_path, module, data, callback, **more)
    amp = "precision" in more
    expected = by_hand(data, 0.5, **how, accumulate=more.get("accumulate_grad_batches", 1), amp=amp)
    for mine, other in zip(module.model.state_dict().values(), expected.state_dict().values(), strict=True):
        torch.testing.assert_close(mine, other)
    plain = lightning().Plain()
    assert list(module.state_dict()) == names
    assert (type(module.model), "training_step" in vars(module)) == (nn.Sequential, False)
    assert not any(torch.equal(a, b) for a, b in zip(module.parameters(), plain.parameters(), strict=True))
    if not how:
        terms = [f"racecar/{name}" for name in callback.rr.terms]
        assert terms == ["racecar/1", "racecar/4"]
        assert {"racecar/loss", *terms} <= set(fitted.callback_metrics)


@pytest.mark.parametrize(
    "hook, error, before",
    [
        ("setup", RuntimeError, True),
        ("setup", RuntimeError, False),
        ("on_fit_start", RuntimeError, False),
        ("on_train_batch_end", RuntimeError, True),
        ("on_train_batch_end", KeyboardInterrupt, False),
        ("on_fit_end", RuntimeError, True),
        ("teardown", RuntimeError, False),
    ],
)
def test_after_an_error_the_network_is_plain(tmp_path, data, monkeypatch, hook, error, before):
    """After a fit that fails or is interrupted anywhere, the network has no racecar loss any more."""
    monkeypatch.setattr("signal.signal", lambda *_: None)  # Lightning leaves interrupts switched off before it exits
    module, callback, fails = (
        lightning().Plain(),
        lightning().RacecarCallback(weight=0.5),
        lightning().Fails(hook, error),
    )
    with pytest.raises(SystemExit if error is KeyboardInterrupt else error):
        fit(tmp_path, module, data, [fails, callback] if before else [callback, fails], epochs=1)
    assert (type(module.model), "training_step" in vars(module)) == (nn.Sequential, False)
    module.load_state_dict(lightning().Plain().state_dict())
    other = lightning().Plain()
    for one in (module, other):
        fit(tmp_path, one, data, [], epochs=1)
    for mine, expected in zip(module.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine, expected, rtol=0, atol=0)
    fit(tmp_path, module, data, callback, epochs=1)  # and the callback serves again
    assert callback.rr is not None


def test_an_error_before_the_fit_is_the_one_that_is_seen(tmp_path, data, monkeypatch):
    """Lightning calls ``on_exception`` without a module, too."""
    module, callback = lightning().Plain(), lightning().RacecarCallback()
    fit(tmp_path, module, data, callback, epochs=1)
    one = trainer(tmp_path, callback)

    def fail(_):
        raise RuntimeError("on purpose")

    monkeypatch.setattr(one.strategy, "connect", fail)
    with pytest.raises(RuntimeError, match="on purpose"):
        one.fit(module, torch.utils.data.DataLoader(data, 8))


def test_which_network(tmp_path, data):
    """The one part that has weights; where there are several, the module itself, unless it is not what is called."""
    two = lightning().Plain()
    two.head = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="training_step did not call Plain.* name the network .*'model', 'head'"):
        fit(tmp_path, copy.deepcopy(two), data, lightning().RacecarCallback(), epochs=1)
    callback = lightning().RacecarCallback("model", weight=0.5)
    fit(tmp_path, copy.deepcopy(two), data, callback, epochs=1)
    assert list(callback.rr.terms) == ["1", "4"]
    with pytest.raises(ValueError, match="Plain has no part 'net', but 'model', 'head'"):
        fit(tmp_path, two, data, lightning().RacecarCallback("net"), epochs=1)


def test_checkpoints(tmp_path, data):
    """Every weight once; a training that goes on is in step with the schedule."""
    module, callback = lightning().Plain(), lightning().RacecarCallback(every=3)
    fitted = fit(tmp_path, module, data, callback, epochs=1)
    fitted.save_checkpoint(tmp_path / "one.ckpt")
    kept = torch.load(tmp_path / "one.ckpt", weights_only=True)
    assert list(kept["state_dict"]) == list(lightning().Plain().state_dict())
    other = lightning().RacecarCallback(every=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loader = torch.utils.data.DataLoader(data, 8)
        trainer(tmp_path, other, 2).fit(lightning().Plain(), loader, ckpt_path=tmp_path / "one.ckpt")
    assert other.attached.calls == 2 * STEPS


def test_pictures(tmp_path):
    """Every so many steps a row of inputs, and one for each depth, to loggers of either kind."""
    torch.manual_seed(0)
    x = torch.rand(16, 1, 8, 8)
    data = torch.utils.data.TensorDataset(x, torch.arange(16) % 2)
    module = lightning().Plain()
    module.model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Conv2d(3, 2, 3), nn.Flatten(), nn.Linear(32, 2))
    mine, board = lightning().Pictures(), lightning().pl.loggers.TensorBoardLogger(tmp_path)
    callback = lightning().RacecarCallback(pictures=2)
    fit(tmp_path, module, data, callback, epochs=2, logger=[mine, board], log_every_n_steps=1)
    assert [(key, step) for key, step, _ in mine.kept] == [("racecar/rebuilt", 2), ("racecar/rebuilt", 4)]
    ((picture,),) = [images for _, step, images in mine.kept if step == 4]
    assert picture.shape == (8 * 4, 8 * 8, 1)
    first = torch.cat(list(x[8:]), 2)[0]
    torch.testing.assert_close(torch.from_numpy(picture[:8, :, 0]), (first - first.min()) / (first.max() - first.min()))
    assert picture[8:].std() > 0
    (events,) = tmp_path.rglob("events*")
    assert b"racecar/rebuilt" in events.read_bytes()


def test_plasticity_is_watched_and_the_training_stays_what_it_was(tmp_path, data):
    """Over two fits, beside the racecar loss: the start, then every three steps."""
    watch, logger = lightning().PlasticityCallback(data.tensors[0], every=3), lightning().Scalars()
    watched, alone = lightning().Plain(), lightning().Plain()
    for _ in range(2):
        fit(tmp_path, watched, data, [lightning().RacecarCallback(weight=0.5), watch], epochs=1, logger=logger)
        fit(tmp_path, alone, data, lightning().RacecarCallback(weight=0.5), epochs=1)
    torch.testing.assert_close(watched.state_dict(), alone.state_dict(), rtol=0, atol=0)
    assert [step for step, _ in watch.plasticity.history] == [0, 3, 6]
    names = {
        f"plasticity/{what}/{layer}" for what in ("dead", "rank", "low", "middle", "high", "error") for layer in "14"
    }
    assert [kept for _, kept in logger.kept if kept] == [names] * 3
    now = plasticity(watched.model, data.tensors[0], start=watch.plasticity.history[0][1])
    assert str(watch.plasticity.look()) == str(now)
