"""Small networks that each try one thing about how a model is called or written, or where its weights come from."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

# --- how the operations are written -----------------------------------------------------------------------------


class Functional(nn.Module):
    """Everything between the weights is a function or a tensor method."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 3, padding=1)
        self.conv2 = nn.Conv2d(6, 6, 3, padding=1)
        self.conv3 = nn.Conv2d(12, 8, 3, stride=2, padding=1)
        self.fc1, self.fc2 = nn.Linear(8 * 4 * 4, 12), nn.Linear(12 + 8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.conv1(x))
        y = x + torch.tanh(self.conv2(x))
        x = F.leaky_relu(self.conv3(torch.cat([x, y], 1)), 0.1)
        h = F.dropout(self.fc1(x.flatten(1)).sigmoid(), 0.2, self.training)
        return self.fc2(torch.cat((h, x.mean((2, 3))), dim=1))


class BareWeights(nn.Module):
    """No layer modules at all: parameters of its own, used by functions and by @."""

    def __init__(self):
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(4, 1, 3, 3) / 3)
        self.weight = nn.Parameter(torch.randn(4 * 4 * 4, 5) / 8)
        self.bias = nn.Parameter(torch.zeros(5))

    def forward(self, x: Tensor) -> Tensor:
        x = F.conv2d(x, self.kernel, stride=2, padding=1).relu_()
        return x.reshape(x.shape[0], -1) @ self.weight + self.bias


class Branching(nn.Module):
    """Which branch is taken depends on the data: `left` if the mean of x is above 0, else `right`, twice."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)
        self.left, self.right = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        positive = x.mean() > 0
        h = F.relu(self.first(x))
        h = F.relu(self.left(h)) if positive else torch.tanh(self.right(torch.tanh(self.right(h))))
        return self.last(h)


class Checkpointed(nn.Module):
    """The middle is computed again in the backward pass."""

    def __init__(self, use_reentrant: bool = False):
        super().__init__()
        self.use_reentrant = use_reentrant
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)
        self.middle = nn.Sequential(nn.ReLU(), nn.Linear(8, 10), nn.ReLU(), nn.Linear(10, 8), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        return self.last(checkpoint(self.middle, self.first(x), use_reentrant=self.use_reentrant))


# --- how the model is called, and what it returns ---------------------------------------------------------------


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.image = nn.Conv2d(1, 4, 3, stride=2, padding=1)
        self.table = nn.Linear(5, 6)
        self.head = nn.Linear(4 + 6, 3)

    def forward(self, image: Tensor, table: Tensor) -> Tensor:
        x = F.relu(self.image(image)).mean((2, 3))
        return self.head(torch.cat([x, F.relu(self.table(table))], 1))


class KeywordInputs(nn.Module):
    """Keyword arguments alone, one optional, one no tensor."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, *, x: Tensor, mask: Tensor | None = None, scale: float = 1.0) -> Tensor:
        h = torch.tanh(self.first(x)) * scale
        return self.last(h if mask is None else h * mask)


@dataclass
class Output:
    logits: Tensor
    hidden: Tensor
    loss: Tensor | None = None


class Structured(nn.Module):
    """Returns its results as `form`: "dict", "tuple" (nested) or "dataclass"."""

    def __init__(self, form: str):
        super().__init__()
        self.form = form
        self.first, self.second, self.last = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor):
        hidden = F.relu(self.second(F.relu(self.first(x))))
        logits = self.last(hidden)
        if self.form == "dict":
            return {"logits": logits, "hidden": hidden, "name": "structured"}
        if self.form == "tuple":
            return logits, (hidden, None)
        return Output(logits, hidden)


# --- where the weights come from --------------------------------------------------------------------------------


class Tied(nn.Module):
    """Two layers hold one weight, each with a bias of its own."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)
        self.middle, self.again = nn.Linear(8, 8), nn.Linear(8, 8)
        self.again.weight = self.middle.weight

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.middle(torch.tanh(self.first(x))))
        return self.last(torch.tanh(self.again(h)))


class TiedAutoencoder(nn.Module):
    """The decoder is the encoder's weight, transposed."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(8, 5)
        self.bias = nn.Parameter(torch.zeros(8))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(torch.tanh(self.encoder(x)), self.encoder.weight.t(), self.bias)


class Reused(nn.Module):
    """One linear layer and one activation, each called three times."""

    def __init__(self):
        super().__init__()
        self.first, self.step, self.last = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        self.activation = nn.Tanh()

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        for _ in range(3):
            h = self.step(self.activation(h))
        return self.last(h)


def parametrised(kind: str) -> nn.Sequential:
    """The first two layers have parametrised weights: `kind` is "weight_norm", "spectral_norm" or "orthogonal"."""
    wrap = getattr(parametrizations, kind)
    return nn.Sequential(
        *(wrap(nn.Conv2d(1, 4, 3, padding=1)), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(wrap(nn.Linear(4 * 4 * 4, 8)), nn.Tanh(), nn.Linear(8, 3)),
    )


def frozen() -> nn.Sequential:
    """The first layer does not learn."""
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    model[0].requires_grad_(False)
    return model
