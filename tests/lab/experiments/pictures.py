"""Made-up pictures in the layouts of MNIST and CIFAR-10, and a task of 12 bits in that of var_u.mat."""

import struct
from pathlib import Path

import numpy as np
from scipy.io import savemat


def write_mnist(folder: Path, counts: dict[str, int], rng: np.random.Generator) -> None:
    """So many pictures of each split, their labels 0 … 9 in turn."""
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for name, count in (("train", counts["train"]), ("t10k", counts["test"])):
        pixels, labels = rng.integers(0, 256, count * 784, np.uint8), np.arange(count, dtype=np.uint8) % 10
        (raw / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">4I", 0x803, count, 28, 28) + pixels.tobytes())
        (raw / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, count) + labels.tobytes())


def write_cifar(folder: Path, counts: dict[str, int], rng: np.random.Generator) -> None:
    """So many pictures of each split, those to train on in five files."""
    batches = folder / "cifar-10-batches-bin"
    batches.mkdir()
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        count = counts["test"] if name == "test_batch" else counts["train"] // 5
        rows = rng.integers(0, 256, (count, 3073), np.uint8)
        rows[:, 0] = np.arange(count) % 10
        (batches / f"{name}.bin").write_bytes(rows.tobytes())


def write_task(path: Path, seed: int | None = None) -> dict[tuple[int, ...], int]:
    """A file of var_u.mat's form; pattern → label. Labels are drawn, or without a seed: are there more ones than 5?"""
    patterns = np.array([[number >> bit & 1 for bit in range(12)] for number in range(4096)], dtype=np.uint8)
    labels = patterns.sum(1) > 5 if seed is None else np.random.default_rng(seed).integers(0, 2, 4096)
    savemat(path, {"F": patterns, "y": labels.astype(np.uint8)[None]})
    return {tuple(row): int(label) for row, label in zip(patterns.tolist(), labels, strict=True)}
