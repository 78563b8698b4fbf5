"""Build the model that TARGET on the command line names, and find out its inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from torch import nn

from racecar.cli.target.huggingface import open_huggingface
from racecar.cli.target.inputs import Example, Input, arguments, draw, like, parse
from racecar.cli.target.state_files import load_weights
from racecar.inspect.unwrap import unwrapped
from racecar.support.importing import imported, look_up
from racecar.watch.guards import check_model

FORMS = "package.module:callable, timm:NAME, torchvision:NAME or hf:CONFIG.json"
Opened = tuple[nn.Module, tuple[Input, ...]]
"""A model and its inputs, as far as they are known; () if not."""


@dataclass(frozen=True, eq=False)
class Target:
    """The model that TARGET names, in evaluation mode, and its inputs."""

    name: str
    """TARGET."""
    model: nn.Module
    inputs: tuple[Input, ...]

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of real inputs: float64 if a parameter has it, else float32."""
        double = any(p.dtype == torch.float64 for p in self.model.parameters())
        return torch.float64 if double else torch.float32

    def example(self, seed: int) -> Example:
        """Noise in the form in which the model is called."""
        return arguments(self.inputs, draw(self.inputs, seed, self.dtype))

    def __str__(self) -> str:
        count = sum(p.numel() for p in self.model.parameters())
        inputs = ", ".join(map(str, self.inputs))
        return f"{self.name}: {type(self.model).__name__}, {count:,} parameters, input {inputs}"


def open_target(name: str, shape: str = "", weights: Path | None = None, seed: int = 0) -> Target:
    """Build the model that TARGET names, fill in weights, and find out its inputs.

    Args:
        name: TARGET.
        shape: the text of ``--input``; "": the model's own inputs.
        weights: file of a state dict; None: random weights, or those that come with TARGET.
        seed: seed of the random weights.
    """
    given = parse(shape) if shape else ()
    torch.manual_seed(seed)  # a module may build its model when it is imported
    scheme, colon, rest = name.partition(":")
    if not colon or not rest:
        raise ValueError(f"unknown target {name!r}: it must be {FORMS}")
    if scheme == "hf":
        model, inputs = open_huggingface(Path(rest), given)
    elif scheme == "timm":
        model, inputs = _timm(rest, seed)
    elif scheme == "torchvision":
        model, inputs = _torchvision(rest, seed)
    else:
        model, inputs = _python(scheme, rest, seed)
    inputs = given if given and scheme != "hf" else inputs  # those of transformers have names now
    model = unwrapped(model)
    check_model(model)
    if not inputs:
        raise ValueError(f"{name} does not say what its input is: give --input, for example --input 1,3,224,224")
    if any(p.dtype in (torch.float16, torch.bfloat16) for p in model.parameters()):
        model.float()
    if weights is not None:
        load_weights(model, weights)
    return Target(name, model.eval(), inputs)


def _python(module_name: str, attribute: str, seed: int) -> Opened:
    """Open ``package.module:callable``: the model that the callable returns, or the one of that name."""
    target = f"{module_name}:{attribute}"
    model: Any = look_up(target, Path.cwd(), "target")
    if not isinstance(model, nn.Module):
        if not callable(model):
            raise TypeError(f"{target} is neither callable nor a module, but {type(model).__name__}")
        model = _built(target, seed, model)
    if not isinstance(model, nn.Module):
        raise TypeError(f"{target} returned {type(model).__name__}: it must return a torch.nn.Module")
    return model, like(getattr(model, "example_input_array", None))


def _timm(name: str, seed: int) -> Opened:
    timm = imported("timm", "timm:NAME needs timm: pip install timm")
    _check_name("timm", name, timm.list_models())
    model = _built(f"timm:{name}", seed, timm.create_model, name, pretrained=False)
    settings = getattr(model, "pretrained_cfg", None) or getattr(model, "default_cfg", None) or {}
    size = settings.get("input_size")
    return model, (Input((1, *size)),) if size else ()


def _torchvision(name: str, seed: int) -> Opened:
    models = imported("torchvision.models", "torchvision:NAME needs torchvision: pip install torchvision")
    _check_name("torchvision", name, models.list_models())
    # Detectors and segmenters would fetch the weights of their backbone from the network.
    options = signature(models.get_model_builder(name)).parameters
    settings = {option: None for option in ("weights", "weights_backbone") if option in options}
    return _built(f"torchvision:{name}", seed, models.get_model, name, **settings), (Input((1, 3, 224, 224)),)


def _built(target: str, seed: int, build: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The model of a target: the result of ``build`` with torch's seed set; raises ValueError if that fails."""
    torch.manual_seed(seed)  # again: an import may have drawn numbers
    try:
        return build(*args, **kwargs)
    except Exception as error:
        raise ValueError(f"{target} could not be built: {type(error).__name__}: {error}") from error


def _check_name(library: str, name: str, known: list[str]) -> None:
    """Raise, with similar names, if the library has no model of this name."""
    if name.partition(".")[0] not in known:  # timm: NAME.TAG, a tag names pretrained weights
        close = get_close_matches(name, known)
        hint = f"; it has {', '.join(close)}" if close else ""
        raise ValueError(f"unknown target '{library}:{name}': {library} has no such model{hint}")
