"""Our own networks for the tests: random weights, tiny sizes, milliseconds on a CPU.

`NETWORKS[name]()` returns a model and its `example_inputs` (a tensor, a tuple of positional arguments or a dict of
keyword arguments), the same ones every time; another `seed` gives other weights and inputs. The caller's random state
stays as it is.
"""

import functools
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from .forms import (
    BareWeights,
    Branching,
    Checkpointed,
    Functional,
    KeywordInputs,
    Reused,
    Structured,
    Tied,
    TiedAutoencoder,
    TwoInputs,
    frozen,
    parametrised,
)
from .images import DenseNet, MlpMixer, PreactResNet, ResNet, UNet, mlp, paper_net, vgg
from .sequences import Attention, Encoder, Gated, LanguageModel, ScaledDotProduct, Text

Inputs = Tensor | tuple[Any, ...] | dict[str, Any]
Build = Callable[..., tuple[nn.Module, Inputs]]


def seeded(build: Callable[[], tuple[nn.Module, Inputs]], first: int = 0) -> Build:
    """Build with random numbers of its own, so that the caller's stay untouched; seeds count from ``first``."""

    @functools.wraps(build)
    def wrapped(seed: int = 0) -> tuple[nn.Module, Inputs]:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(first + seed)
            return build()

    return wrapped


def call(model: nn.Module, inputs: Inputs) -> Any:
    """What the model makes of inputs in the form of `example_inputs`."""
    if isinstance(inputs, dict):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, tuple) else model(inputs)


def images(channels: int = 3, size: int = 16) -> Tensor:
    return torch.rand(4, channels, size, size)


def rows(width: int = 6) -> Tensor:
    return torch.randn(4, width)


def sequence(width: int, length: int = 5) -> Tensor:
    return torch.randn(3, length, width)


def tokens(vocabulary: int = 20, length: int = 7) -> Tensor:
    return torch.randint(1, vocabulary, (3, length))


_BUILDERS: dict[str, Callable[[], tuple[nn.Module, Inputs]]] = {
    # families
    "vgg": lambda: (vgg(4, width=4, size=16), images()),
    "vgg_plain": lambda: (vgg(3, width=4, norm=False, size=16), images()),
    "resnet": lambda: (ResNet(8, width=4, shortcut="conv"), images()),
    "resnet_pad": lambda: (ResNet(8, width=4, shortcut="pad"), images()),
    "preact_resnet": lambda: (PreactResNet(8, width=4), images()),
    "densenet": lambda: (DenseNet(), images()),
    "unet": lambda: (UNet(), images()),
    "unet_nearest": lambda: (UNet(up="nearest"), images()),
    "unet_bilinear": lambda: (UNet(up="bilinear"), images()),
    "mlp_mixer": lambda: (MlpMixer(), images()),
    "mlp": lambda: (mlp([6, 8, 8, 3]), rows()),
    "mlp_norm": lambda: (mlp([6, 8, 8, 3], nn.Tanh, norm=True), rows()),
    "paper_net": lambda: (paper_net(), images(1)),
    # how the operations are written
    "functional": lambda: (Functional(), images(size=8)),
    "bare_weights": lambda: (BareWeights(), images(1, 8)),
    "branching": lambda: (Branching(), rows().abs()),
    "checkpointed": lambda: (Checkpointed(), rows()),
    # how the model is called, and what it returns
    "two_inputs": lambda: (TwoInputs(), (images(1, 8), rows(5))),
    "keyword_inputs": lambda: (KeywordInputs(), {"x": rows(), "mask": (rows(8) > 0).float(), "scale": 0.5}),
    "dict_output": lambda: (Structured("dict"), rows()),
    "tuple_output": lambda: (Structured("tuple"), rows()),
    "dataclass_output": lambda: (Structured("dataclass"), rows()),
    # where the weights come from
    "tied": lambda: (Tied(), rows()),
    "tied_autoencoder": lambda: (TiedAutoencoder(), rows(8)),
    "reused": lambda: (Reused(), rows()),
    "weight_norm": lambda: (parametrised("weight_norm"), images(1, 8)),
    "spectral_norm": lambda: (parametrised("spectral_norm"), images(1, 8)),
    "orthogonal": lambda: (parametrised("orthogonal"), images(1, 8)),
    "frozen": lambda: (frozen(), rows()),
    # tokens and sequences
    "text": lambda: (Text(), tokens()),
    "language_model": lambda: (LanguageModel(), tokens()),
    "gated": lambda: (Gated(), sequence(8)),
    "gated_fused": lambda: (Gated(fused=True), sequence(8)),
    "encoder": lambda: (Encoder(), sequence(5)),
    "encoder_norm_first": lambda: (Encoder(norm_first=True), sequence(5)),
    "attention": lambda: (Attention(), sequence(5)),
    "cross_attention": lambda: (Attention(cross=True), (sequence(5), sequence(6, length=4))),
    "scaled_dot_product": lambda: (ScaledDotProduct(), sequence(8)),
}

FIRST = {"vgg": 8}
"""With 0 one of its ReLUs stands so near 0 that rounding decides its gradient, and machines differ by a hundredth."""

NETWORKS: dict[str, Build] = {name: seeded(build, FIRST.get(name, 0)) for name, build in _BUILDERS.items()}

SOME = (
    "vgg", "resnet_pad", "unet_bilinear", "mlp_norm", "functional", "bare_weights", "two_inputs", "dict_output",
    "tied_autoencoder", "spectral_norm", "text", "gated_fused", "encoder", "attention",
)  # fmt: skip
"""A dozen of every kind, for what is checked in several ways: one way for all networks, the others for these."""


def soak_others(names: Iterable[str] = NETWORKS) -> list[Any]:
    """The names as parameters of a test, of which `make test` runs those in SOME, and `make long` the others."""
    return [name if name in SOME else pytest.param(name, marks=pytest.mark.soak) for name in names]
