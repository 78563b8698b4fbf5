"""Small random-weight models of Hugging Face `transformers`, made from configurations: nothing is downloaded.

`HF_MODELS[name]()` returns a model and its keyword arguments, as in `networks.NETWORKS`.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tests.networks import seeded


def make(name: str, head: str = "ForImageClassification", **config: Any) -> nn.Module:
    """`name` + `head` with random weights; `transformers` itself is imported here, and asked to be quiet."""
    import transformers

    transformers.logging.set_verbosity_error()
    settings = getattr(transformers, name + "Config")(**config)
    return getattr(transformers, name + head)(settings)


def pixels(size: int = 32) -> dict[str, Tensor]:
    return {"pixel_values": torch.rand(3, 3, size, size)}


def tokens(length: int = 8) -> Tensor:
    return torch.randint(2, 40, (3, length))


def resnet():
    sizes = {"embedding_size": 8, "hidden_sizes": [8, 12, 16, 24], "depths": [1, 2, 1, 1]}
    return make("ResNet", layer_type="bottleneck", num_labels=5, **sizes), pixels(64)


def vit():
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    return make("ViT", image_size=32, patch_size=8, num_labels=5, **sizes), pixels()


def convnext():
    # the usual first layer scale of 1e-6 would leave the blocks almost without gradient
    sizes = {"hidden_sizes": [8, 12, 16, 20], "depths": [1, 1, 2, 1], "layer_scale_init_value": 0.1}
    return make("ConvNext", drop_path_rate=0.1, image_size=64, num_labels=5, **sizes), pixels(64)


def swin():
    sizes = {"embed_dim": 8, "depths": [2, 2], "num_heads": [2, 2], "window_size": 4, "patch_size": 2}
    return make("Swin", image_size=32, num_labels=5, **sizes), pixels()


def mobilenet_v2():
    sizes = {"depth_multiplier": 0.1, "depth_divisible_by": 4, "min_depth": 4, "expand_ratio": 2.0}
    return make("MobileNetV2", image_size=64, num_labels=5, **sizes), pixels(64)


def efficientnet():
    # The usual start (0.02, the norms' scales too) would let the activations vanish: 1e-19 at the top.
    # All widths are shrunk to a quarter, also the 32 of the stem and the 1280 of the top
    shape = {"width_coefficient": 0.25, "depth_coefficient": 1.0, "depth_divisor": 4, "hidden_dim": 320}
    widths = {"in_channels": [32, 16, 24], "out_channels": [16, 24, 40], "expand_ratios": [1, 3, 3]}
    blocks = {"kernel_sizes": [3, 3, 5], "strides": [1, 2, 2], "num_block_repeats": [1, 2, 2]}
    model = make("EfficientNet", image_size=32, num_labels=5, initializer_range=0.5, **shape, **widths, **blocks)
    return model, pixels()


def regnet():
    # any narrower, and the few hidden units of a squeeze-excite branch may all be dead
    sizes = {"embedding_size": 24, "hidden_sizes": [24, 32, 40, 48], "depths": [1, 2, 1, 1], "groups_width": 8}
    return make("RegNet", layer_type="y", num_labels=5, **sizes), pixels(64)


def bert():
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    model = make("Bert", "ForSequenceClassification", vocab_size=40, max_position_embeddings=16, num_labels=5, **sizes)
    mask = torch.ones(3, 8, dtype=torch.long)
    mask[1, 5:] = 0
    return model, {"input_ids": tokens(), "attention_mask": mask}


def gpt2():
    special = {"bos_token_id": 0, "eos_token_id": 1}
    sizes = {"vocab_size": 40, "n_positions": 16, "n_embd": 16, "n_layer": 2, "n_head": 2}
    return make("GPT2", "LMHeadModel", use_cache=False, **special, **sizes), {"input_ids": tokens()}


def t5():
    sizes = {"vocab_size": 40, "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2}
    model = make("T5", "ForConditionalGeneration", use_cache=False, **sizes)
    return model, {"input_ids": tokens(), "decoder_input_ids": tokens(6)}


def mixtral(experts: str = "eager"):
    """Experts by index. ``experts``: how transformers computes them."""
    sizes = {"vocab_size": 40, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "num_local_experts": 4}
    settings = {"use_cache": False, "experts_implementation": experts}
    return make("Mixtral", "ForCausalLM", **sizes, **heads, **settings), {"input_ids": tokens()}


_BUILDERS = (resnet, vit, convnext, swin, mobilenet_v2, efficientnet, regnet, bert, gpt2, t5)

HF_MODELS: dict[str, Callable[..., tuple[nn.Module, dict[str, Any]]]] = {
    build.__name__: seeded(build) for build in _BUILDERS
}
