"""Trainings by Hugging Face's Trainer with the mixin equal the same trainings by hand."""

import copy
import warnings
from contextlib import nullcontext

import pytest
import torch
from torch import nn

from racecar import Racecar
from racecar.inspect import plasticity

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from transformers import (
        BertConfig,
        BertForSequenceClassification,
        GPT2Config,
        GPT2LMHeadModel,
        TrainerCallback,
        TrainingArguments,
        ViTConfig,
        ViTForImageClassification,
    )

    from racecar.integrations.transformers import PlasticityCallback, RacecarTrainer

SMALL = {"num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 12}
TOKENS = torch.randint(1, 20, (8, 6), generator=torch.Generator().manual_seed(0))
MASK = (torch.arange(6) < torch.tensor([6, 3, 4, 5, 6, 2, 6, 3])[:, None]).long()
SHOWN = MASK * (torch.arange(6) > 0)
"""Tokens that are predicted."""


def bert():
    return BertForSequenceClassification(BertConfig(vocab_size=20, max_position_embeddings=8, **SMALL))


def vit():
    return ViTForImageClassification(ViTConfig(image_size=8, patch_size=4, **SMALL))


def gpt2():
    return GPT2LMHeadModel(GPT2Config(vocab_size=20, n_positions=8, n_embd=8, n_layer=1, n_head=2, pad_token_id=0))


CASES = {
    bert: {"input_ids": TOKENS, "attention_mask": MASK, "labels": torch.arange(8) % 2},
    vit: {"pixel_values": torch.rand(8, 3, 8, 8), "labels": torch.arange(8) % 2},
    gpt2: {"input_ids": TOKENS, "attention_mask": MASK, "labels": TOKENS.masked_fill(SHOWN == 0, -100)},
}


def trainer_of(folder, model, data, racecar, callbacks=(), **more):
    """Two steps of SGD."""
    rows = [{name: one[i] for name, one in data.items()} for i in range(8)]
    how = {"num_train_epochs": 1, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 1, **more}
    args = TrainingArguments(
        folder, optim="sgd", learning_rate=0.1, lr_scheduler_type="constant", max_grad_norm=0.0, report_to=[],
        use_cpu=True, logging_steps=1, disable_tqdm=True, train_sampling_strategy="sequential",
        **{"save_strategy": "no", **how},
    )  # fmt: skip
    return RacecarTrainer(
        model=model, args=args, train_dataset=rows, eval_dataset=rows, racecar=racecar, callbacks=list(callbacks)
    )


def fit(folder, model, data, racecar, **more):
    trainer = trainer_of(folder, model, data, racecar, **more)
    trainer.train()
    return trainer


@pytest.mark.parametrize("build, bf16", [(bert, False), (vit, False), (gpt2, False), (bert, True)])
def test_as_by_hand(build, bf16, tmp_path):
    torch.manual_seed(0)
    model = build()
    for part in model.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    other, names = copy.deepcopy(model), list(model.state_dict())
    trainer = fit(tmp_path, model, CASES[build], {"weight": 0.5}, bf16=bf16)
    assert not torch.is_autocast_enabled("cpu")
    rr, optimiser = Racecar(other, CASES[build], weight=0.5), torch.optim.SGD(other.parameters(), 0.1)
    other.train()
    for i in (0, 4):
        with torch.autocast("cpu", torch.bfloat16, bf16):
            output, loss = rr(**{name: one[i : i + 4] for name, one in CASES[build].items()})
        optimiser.zero_grad()
        (output.loss + loss).backward()
        optimiser.step()
    for mine, one in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine, one, rtol=1e-4, atol=1e-6)
    assert list(model.state_dict()) == names
    logged = trainer.state.log_history[1]
    assert logged["racecar/loss"] == pytest.approx(float(loss.detach()), rel=1e-3)
    assert {f"racecar/{name}" for name in rr.terms} <= set(logged)


class Own(nn.Module):
    """A model of one's own: its loss is a mean, and the trainer divides it."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2))

    def forward(self, x, labels):
        output = self.net(x)
        return {"loss": nn.functional.cross_entropy(output, labels), "logits": output}


OWN = {"x": torch.rand(8, 6, generator=torch.Generator().manual_seed(0)), "labels": torch.arange(8) % 2}


@pytest.mark.parametrize("build", [Own, gpt2])
def test_accumulation(build, tmp_path):
    """Two accumulated batches equal one of twice the size, whether the model or the trainer divides by their number."""
    torch.manual_seed(0)
    model = build()
    if build is Own:
        data = OWN
    else:  # divides by the number of tokens in all batches
        data = {"input_ids": TOKENS, "labels": TOKENS.masked_fill(torch.arange(6) == 0, -100)}
    for part in model.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    other = copy.deepcopy(model)
    how = {"weight": 0.5, "scale": "mean"}  # a mean over the batch, as the task's
    fit(tmp_path, model, data, how, gradient_accumulation_steps=2)
    fit(tmp_path, other, data, how, per_device_train_batch_size=8)
    for mine, one in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine, one, rtol=1e-4, atol=1e-6)


def test_a_second_phase(tmp_path):
    """From an epoch on the loss is left out; evaluation and what the model generates know nothing of it."""
    torch.manual_seed(0)
    model = gpt2()
    trainer = fit(tmp_path, model, CASES[gpt2], {"weight": 0.5, "until": 1}, num_train_epochs=2)
    assert trainer.attached.calls == 2
    logs = [one for one in trainer.state.log_history if "loss" in one]
    assert ["racecar/loss" in one for one in logs] == [True, True, False, False]
    trainer.evaluate([{name: one[0] for name, one in CASES[gpt2].items()}])
    model.generate(TOKENS[:1, :2], max_new_tokens=2, do_sample=False)
    assert trainer.attached.calls == 2


class Fails(TrainerCallback):
    def __init__(self, error):
        self.error = error

    def on_step_end(self, *args, **kwargs):
        raise self.error("on purpose")


@pytest.mark.parametrize("error", [None, KeyboardInterrupt])
def test_the_model_is_plain_before_and_after_training(tmp_path, error):
    """A plain loop is a plain one, the trainer still evaluates, and the cell of a notebook can be run again."""
    torch.manual_seed(0)
    model = Own()
    trainer = trainer_of(tmp_path, model, OWN, {"weight": 0.5}, [] if error is None else [Fails(error)])
    assert (type(model), trainer.rr) == (Own, None)
    with nullcontext() if error is None else pytest.raises(error):
        trainer.train()
    assert (type(model), list(trainer.rr.terms)) == (Own, ["net.0", "net.2"])
    expected = model.train()(**OWN)["loss"].detach()
    torch.testing.assert_close(trainer.compute_loss(model, OWN).detach(), expected, rtol=0, atol=0)
    assert trainer.evaluate()["eval_loss"] == pytest.approx(float(expected), rel=1e-5)
    torch.testing.assert_close(
        torch.as_tensor(trainer.predict(trainer.eval_dataset).predictions), model(**OWN)["logits"].detach()
    )
    fit(tmp_path, model, OWN, {"weight": 0.5})  # while the first trainer is still there


def test_training_goes_on(tmp_path):
    """By the same trainer again, as two trainers would; and from a checkpoint, as if nothing had happened. With bf16,
    where Accelerate puts a forward with autocast over the model's."""
    torch.manual_seed(0)
    model, how = Own(), {"weight": 0.5, "every": 3}
    copies = [copy.deepcopy(model) for _ in range(3)]
    trainer = fit(tmp_path / "a", copies[0], OWN, how, bf16=True)
    trainer.train()
    for _ in range(2):
        fit(tmp_path / "b", copies[1], OWN, how, bf16=True)
    torch.testing.assert_close(copies[0].state_dict(), copies[1].state_dict(), rtol=0, atol=0)

    fit(tmp_path / "c", model, OWN, how, num_train_epochs=2, bf16=True, save_strategy="epoch")
    resumed = trainer_of(tmp_path / "c", copies[2], OWN, how, num_train_epochs=2, bf16=True)
    resumed.train(resume_from_checkpoint=str(tmp_path / "c" / "checkpoint-2"))
    assert resumed.attached.calls == 4
    torch.testing.assert_close(copies[2].state_dict(), model.state_dict(), rtol=0, atol=0)


@pytest.mark.soak
def test_plasticity_is_watched_and_the_training_stays_what_it_was(tmp_path):
    """Over two trainings: the start, then every third of four steps."""
    models, watch = [], PlasticityCallback({"input_ids": TOKENS, "attention_mask": MASK}, every=3)
    for callbacks in ((watch,), ()):
        torch.manual_seed(0)
        models.append(bert())
        trainer = trainer_of(tmp_path, models[-1], CASES[bert], {"weight": 0.5}, callbacks)
        trainer.train()
        trainer.train()
    torch.testing.assert_close(models[0].state_dict(), models[1].state_dict(), rtol=0, atol=0)
    assert [step for step, _ in watch.plasticity.history] == [0, 3]
    now = plasticity(models[0], watch.inputs, start=watch.plasticity.history[0][1])
    assert str(watch.plasticity.look()) == str(now)
    assert "classifier" in str(now)
