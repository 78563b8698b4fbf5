"""Command-line arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Target = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="package.module:callable (called without arguments), timm:NAME, torchvision:NAME, or hf:PATH "
        "of a transformers config file or of a folder with one and its weights.",
    ),
]
Input = Annotated[
    str,
    typer.Option(
        "--input",
        metavar="SHAPE",
        help="Shape with the batch, as 1,3,224,224. Tokens: 1,16:1000, integers below 1000. Several inputs: "
        "'1,3,8,8;1,5', by name 'x=1,3,8,8;y=1,5'. Taken from the model where it says.",
    ),
]
Weights = Annotated[
    Path | None,
    typer.Option("--weights", metavar="FILE", help="State dict: safetensors, or of torch.save. Random without it."),
]
Seed = Annotated[int, typer.Option("--seed", min=0, max=2**63 - 1, help="For random weights and random inputs.")]
