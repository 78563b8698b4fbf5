"""Networks over tokens and sequences: embeddings, gates, attention."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Text(nn.Module):
    """Tokens → embedding → 1-d convolutions → the class of the text."""

    def __init__(self, vocabulary: int = 20, width: int = 8):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=0)
        self.conv1 = nn.Conv1d(width, 12, 3, padding=1)
        self.conv2 = nn.Conv1d(12, 12, 3, stride=2, padding=1)
        self.head = nn.Linear(12, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens).transpose(1, 2)
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        return self.head(x.amax(2))


class LanguageModel(nn.Module):
    """The head's weight is the embedding's, and every token sees the mean of those before it."""

    def __init__(self, vocabulary: int = 20, width: int = 8):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.hidden, self.head = nn.Linear(width, width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        steps = torch.arange(1, tokens.shape[1] + 1, device=x.device, dtype=x.dtype)
        x = x + x.cumsum(1) / steps[:, None]
        return self.head(F.gelu(self.hidden(x)))


class Gated(nn.Module):
    """SwiGLU with a residual; `fused` takes gate and value out of one linear layer."""

    def __init__(self, width: int = 8, inner: int = 12, fused: bool = False):
        super().__init__()
        self.fused = fused
        self.norm = nn.RMSNorm(width)
        if fused:
            self.gate_up = nn.Linear(width, 2 * inner, bias=False)
        else:
            self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down, self.head = nn.Linear(inner, width, bias=False), nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(x)
        gate, up = self.gate_up(h).chunk(2, -1) if self.fused else (self.gate(h), self.up(h))
        x = x + self.down(F.silu(gate) * up)
        return self.head(x)


class Encoder(nn.Module):
    """torch's own encoder layers, which in eval mode and without gradient take a fused path."""

    def __init__(self, width: int = 8, layers: int = 2, norm_first: bool = False):
        super().__init__()
        self.embed = nn.Linear(5, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 2, 16, dropout=0.1, batch_first=True, norm_first=norm_first)
            for _ in range(layers)
        )
        self.head = nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(1))


class Attention(nn.Module):
    """nn.MultiheadAttention: self-attention, and cross-attention to a second sequence of another width if `cross`."""

    def __init__(self, width: int = 8, cross: bool = False):
        super().__init__()
        self.embed, self.head = nn.Linear(5, width), nn.Linear(width, 3)
        other = 6 if cross else None
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True, kdim=other, vdim=other)

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        x = torch.tanh(self.embed(x))
        memory = x if memory is None else memory
        mixed, _ = self.attention(x, memory, memory, need_weights=False)
        return self.head(torch.relu(x + mixed))


class ScaledDotProduct(nn.Module):
    """Causal attention written out: one linear layer for q, k and v, heads by view and transpose."""

    def __init__(self, width: int = 8, heads: int = 2):
        super().__init__()
        self.heads = heads
        self.qkv, self.out, self.head = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return self.head(x)
