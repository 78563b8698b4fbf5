"""The vision transformer (Dosovitskiy et al. 2021); ViT-B/16 takes timm's weights of ``vit_base_patch16_224``."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class PatchEmbed(nn.Module):
    """The embedding of non-overlapping patches as tokens."""

    def __init__(self, patch: int, width: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, width, patch, stride=patch)

    def forward(self, x: Tensor) -> Tensor:
        """The tokens of pictures, one for each patch: x (N, 3, H, W) → (N, tokens, width)."""
        return self.proj(x).flatten(2).transpose(1, 2)


class Attention(nn.Module):
    """Self-attention, with one linear layer for queries, keys and values."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def mix(self, qkv: Tensor) -> Tensor:
        """Attention between the two linear layers, (N, tokens, 3·width) → (N, tokens, width)."""
        batch, tokens, width = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
        q, k, v = qkv.view(batch, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, tokens, width)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens x (N, tokens, width) after self-attention, in the same shape."""
        return self.proj(self.mix(self.qkv(x)))


class EncoderBlock(nn.Module):
    """A transformer block: norm, attention, addition; norm, MLP, addition."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(width, eps=1e-6), Attention(width, heads)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = nn.Sequential(
            OrderedDict(fc1=nn.Linear(width, 4 * width), act=nn.GELU(), fc2=nn.Linear(4 * width, width))
        )

    def forward(self, x: Tensor) -> Tensor:
        """Tokens x (N, tokens, width) after the block, in the same shape."""
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    """A vision transformer: patches, a class token, learned positions, blocks, and a linear layer on the class token.

    Args:
        size: height and width of the pictures.
        patch: height and width of the patches.
        width: channels of a token.
        depth: number of blocks.
        heads: number of attention heads.
        classes: number of outputs.
    """

    def __init__(self, size: int, patch: int, width: int, depth: int, heads: int, classes: int) -> None:
        super().__init__()
        if size % patch or width % heads:
            raise ValueError("the size must be a multiple of the patch, and the width a multiple of the heads")
        self.patch_embed = PatchEmbed(patch, width)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = nn.Parameter(torch.zeros(1, (size // patch) ** 2 + 1, width))
        self.blocks = nn.Sequential(*(EncoderBlock(width, heads) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, classes)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.trunc_normal_(parameter, std=0.02)

    def embed(self, x: Tensor) -> Tensor:
        """The tokens of pictures, x (N, 3, H, W) → (N, 1 + tokens, width)."""
        tokens = self.patch_embed(x)
        return torch.cat([self.cls_token.expand(len(x), -1, -1), tokens], 1) + self.pos_embed

    def forward(self, x: Tensor) -> Tensor:
        """The logits of pictures: x (N, 3, H, W) → (N, classes)."""
        # The norm sees one token at a time, so only the class token needs it.
        return self.head(self.norm(self.blocks(self.embed(x))[:, 0]))


def vit_b16(classes: int = 1000, size: int = 224) -> ViT:
    """The vision transformer ViT-B/16, not trained.

    Args:
        classes: number of outputs.
        size: height and width of the pictures.
    """
    return ViT(size, 16, 768, 12, 12, classes)
