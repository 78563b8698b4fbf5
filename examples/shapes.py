"""Train a small convolutional net twice, plainly and with the reverse pass, and look at what each can rebuild.

    python examples/shapes.py [--steps 400] [--out out/shapes]

Pictures of circles, squares and crosses are made on the spot. The table says how the reverse pass was derived; the
picture shows inputs beside what the reverse pass from the last convolution makes of them. Weights and some pictures are
kept, for ``racecar inspect``; see docs/inspect.md.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from racecar import Racecar

LAMBDA = 0.1
"""Of the mean over the three convolutions."""
CLASSES = ("circle", "square", "cross")


def pictures(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """(count, 1, 28, 28) pictures in [0, 1] and their classes."""
    label = torch.randint(3, (count,), generator=generator)
    centre = 9 + 10 * torch.rand(count, 2, 1, 1, generator=generator)
    radius = 4 + 4 * torch.rand(count, 1, 1, generator=generator)
    grid = torch.arange(28.0)
    dy, dx = (grid.view(1, 28, 1) - centre[:, 0]).abs(), (grid.view(1, 1, 28) - centre[:, 1]).abs()
    circle = ((dx**2 + dy**2).sqrt() - radius).abs() < 1.2
    square = (torch.maximum(dx, dy) - radius).abs() < 1.2
    cross = (torch.minimum(dx, dy) < 1.2) & (torch.maximum(dx, dy) < radius)
    shape = torch.stack((circle, square, cross), 1)[torch.arange(count), label].float()
    noise = 0.1 * torch.rand(count, 28, 28, generator=generator)
    return (0.9 * shape + noise).unsqueeze(1), label


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(288, 3),
    )  # fmt: skip


def train(weight: float, steps: int, seed: int = 0) -> tuple[Racecar, float]:
    """A net trained with λ = ``weight`` on its convolutions, and its accuracy on new pictures."""
    torch.manual_seed(seed)
    model, generator = network(), torch.Generator().manual_seed(seed)
    x, y = pictures(64, generator)
    # The full reverse pass, and more of it than by default: the whole point is to look at what comes out.
    rr = Racecar(model, x, mode="full", weight={"*": weight, "10": 0}, input_activation="relu")
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(steps):
        x, y = pictures(64, generator)
        output, loss = rr(x)
        optimiser.zero_grad()
        (F.cross_entropy(output, y) + loss).backward()
        optimiser.step()
        if step % 50 == 0 or step == steps - 1:
            print(
                f"\r  λ = {weight:g}: step {step + 1} of {steps}, reverse loss {float(loss.detach()):.3f}",
                end="",
                flush=True,
            )
    print()
    model.eval()
    x, y = pictures(1000, torch.Generator().manual_seed(seed + 1))
    with torch.no_grad():
        accuracy = (model(x).argmax(1) == y).float().mean().item()
    rr.weight = {"*": 1.0, "10": 0}
    return rr, accuracy


def keep(folder: Path, count: int = 64) -> None:
    """Some pictures as files, one folder for each class."""
    images, labels = pictures(count, torch.Generator().manual_seed(7))
    for i, (image, label) in enumerate(zip(images, labels, strict=True)):
        place = folder / CLASSES[label]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray((image[0] * 255).round().clamp(0, 255).byte().numpy()).save(place / f"{i:03}.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--out", type=Path, default=Path("out/shapes"))
    options = parser.parse_args()
    print("Training without and with the reverse pass:")
    runs = {"Std": train(0.0, options.steps), "RR": train(LAMBDA, options.steps)}
    print(f"\n{runs['RR'][0].plan}\n")

    x, _ = pictures(8, torch.Generator().manual_seed(7))
    rows = {"input": x}
    for name, (rr, accuracy) in runs.items():
        rebuilt = rr.reconstruct(x)[0]
        error = ((rebuilt - x).square().sum() / x.square().sum()).item()
        rows[name] = rebuilt
        print(f"{name:4} accuracy {accuracy:.3f}, relative error of the rebuilt input {error:.3f}")

    figure, axes = plt.subplots(len(rows), len(x), figsize=(len(x) * 1.2, len(rows) * 1.3))
    for line, (name, images) in zip(axes, rows.items(), strict=True):
        for axis, image in zip(line, images, strict=True):
            axis.imshow(image[0], cmap="gray", vmin=0, vmax=1)
            axis.set(xticks=[], yticks=[])
        line[0].set_ylabel(name)
    figure.suptitle("Inputs, and what the reverse pass from the last convolution makes of them", fontsize=10)
    figure.tight_layout()
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "rebuilt.png"
    figure.savefig(path, dpi=130)
    for name, (rr, _) in runs.items():
        save_file(rr.model.state_dict(), options.out / f"{name}.safetensors")
    keep(options.out / "pictures")
    print(f"\nPicture: {path}\nWeights and pictures: {options.out}")


if __name__ == "__main__":
    main()
