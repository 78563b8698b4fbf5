"""Models of Hugging Face transformers from files on this machine; nothing is downloaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from racecar.cli.target.inputs import Input
from racecar.support.console import note

WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
TOKENS = 16


def open_huggingface(path: Path, given: Sequence[Input]) -> tuple[nn.Module, tuple[Input, ...]]:
    """Build a model from a config file (random weights) or from a folder with one (its weights, if any).

    Args:
        path: the file or the folder.
        given: the inputs of ``--input``, which get the names of the model's arguments.

    Returns:
        The model and its inputs.
    """
    file = path / "config.json" if path.is_dir() else path
    if not file.is_file():
        raise ValueError(f"unknown target 'hf:{path}': there is no file {file}; hf: reads local files only")
    try:
        import transformers
    except ModuleNotFoundError as error:
        raise ImportError("hf:CONFIG.json needs transformers: pip install transformers") from error
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        model = _model(transformers, path, file)
    except Exception as error:
        raise ValueError(f"hf:{path} could not be built: {type(error).__name__}: {error}") from error
    return model, _inputs(model, given)


def _model(transformers: Any, path: Path, file: Path) -> nn.Module:
    local = {"local_files_only": True, "trust_remote_code": False}
    config = transformers.AutoConfig.from_pretrained(str(file), **local)
    if hasattr(config, "use_cache"):
        config.use_cache = False  # a cache of earlier tokens would look like joins
    architecture = getattr(transformers, (config.architectures or [""])[0], None)
    known = isinstance(architecture, type) and issubclass(architecture, transformers.PreTrainedModel)
    model_class: Any = architecture if known else transformers.AutoModel
    if not path.is_dir() or not any(any(path.glob(pattern)) for pattern in WEIGHTS):
        return model_class(config) if known else model_class.from_config(config, trust_remote_code=False)
    model, report = model_class.from_pretrained(str(path), config=config, output_loading_info=True, **local)
    missing = sorted(report["missing_keys"])
    if missing:
        names = ", ".join(missing[:3]) + (", …" if len(missing) > 3 else "")
        note(f"{len(missing)} weights are not in {path} and stay random: {names}")
    return model


def _inputs(model: Any, given: Sequence[Input]) -> tuple[Input, ...]:
    """The given inputs, or defaults for pictures and tokens, named as the model's arguments."""
    config, main = model.config, model.main_input_name
    below = getattr(config, "vocab_size", 0) if main == "input_ids" else 0
    names = [main, "decoder_input_ids"] if getattr(config, "is_encoder_decoder", False) else [main]
    if given and given[0].name:
        return tuple(given)
    if len(given) > len(names):
        raise ValueError(f"name the inputs, as in --input '{main}={','.join(map(str, given[0].shape))};NAME=SHAPE'")
    inputs = list(given or _default_inputs(config, main, below))
    inputs += inputs[-1:] * (len(names) - len(inputs))  # a decoder reads as much as its encoder
    named = zip(inputs, names, strict=False)
    return tuple(replace(unnamed, name=name, below=unnamed.below or below) for unnamed, name in named)


def _default_inputs(config: Any, main: str, vocabulary: int) -> tuple[Input, ...]:
    """Shapes of the example inputs when the user gives none: one picture, or one row of tokens.

    Args:
        config: of the Hugging Face model.
        main: name of the model's main input, for example "input_ids".
        vocabulary: number of tokens; 0 if the model has none.

    Returns:
        One ``Input``; () if the main input is neither pictures nor tokens.
    """
    if main == "pixel_values":
        size = getattr(config, "image_size", 224)
        height, width = size if isinstance(size, (list, tuple)) else (size, size)
        return (Input((1, getattr(config, "num_channels", 3), height, width)),)
    if main == "input_ids" and vocabulary:
        longest = getattr(config, "max_position_embeddings", TOKENS)
        return (Input((1, min(TOKENS, longest))),)
    return ()
