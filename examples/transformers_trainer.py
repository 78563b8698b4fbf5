"""Hugging Face's Trainer: a small BERT learns which of two tokens is in a sentence more often.

    python examples/transformers_trainer.py [--epochs 3] [--out out/transformers]

Needs transformers and accelerate; nothing is downloaded. Sentences have different lengths: the Trainer pads them, and
tokens that ``attention_mask`` hides do not count in the racecar loss.
"""

from __future__ import annotations

import argparse

import torch
from transformers import BertConfig, BertForSequenceClassification, TrainingArguments

from racecar.integrations.transformers import RacecarTrainer


def sentences(count: int, seed: int) -> list[dict[str, list[int] | int]]:
    """Of 4 to 12 tokens; 1 and 2 are counted, 0 pads."""
    generator = torch.Generator().manual_seed(seed)
    rows: list[dict[str, list[int] | int]] = []
    for _ in range(count):
        length = int(torch.randint(4, 13, (), generator=generator))
        tokens = torch.randint(1, 6, (length,), generator=generator)
        hidden = 12 - length
        rows.append({
            "input_ids": tokens.tolist() + hidden * [0],
            "attention_mask": length * [1] + hidden * [0],
            "labels": int((tokens == 1).sum() > (tokens == 2).sum()),
        })  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--out", default="out/transformers")
    given = parser.parse_args()
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=6, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=12, pad_token_id=0,
    )  # fmt: skip
    args = TrainingArguments(
        given.out, num_train_epochs=given.epochs, per_device_train_batch_size=32, learning_rate=3e-3, use_cpu=True,
        report_to=[], logging_steps=8, save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    trainer = RacecarTrainer(
        model=BertForSequenceClassification(config), args=args, train_dataset=sentences(512, 0),
        eval_dataset=sentences(256, 1), racecar={"weight": 0.01, "fraction": 0.25, "until": given.epochs - 1},
        compute_metrics=lambda found: {"accuracy": float((found.predictions.argmax(1) == found.label_ids).mean())},
    )  # fmt: skip
    trainer.train()
    print(f"accuracy {trainer.evaluate()['eval_accuracy']:.3f}")


if __name__ == "__main__":
    main()
