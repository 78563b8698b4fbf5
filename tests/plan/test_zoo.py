"""Whole architectures: every weighted layer is constrained or has a reason, and gets a gradient."""

import importlib
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.gpu_zoo import GPU_MODELS
from tests.hf_zoo import HF_MODELS
from tests.losses import classic
from tests.networks import NETWORKS, call

WEIGHTED = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


def weighted_calls(model: nn.Module, inputs: Any) -> Counter[str]:
    """How often each linear layer or convolution runs, told by hooks."""
    calls: Counter[str] = Counter()
    handles = [
        module.register_forward_hook(lambda *_, name=name: calls.update([name]))
        for name, module in model.named_modules()
        if isinstance(module, WEIGHTED) or type(module).__name__ == "Conv1D"  # Hugging Face's
    ]
    with torch.random.fork_rng(devices=[]):
        call(model, inputs)
    for handle in handles:
        handle.remove()
    return calls


def owner(model: nn.Module, name: str) -> nn.Module:
    """The module that an entry is named after, with or without the name of one of several weights."""
    name = name.partition("#")[0]
    return dict(model.named_modules()).get(name) or model.get_submodule(name.rpartition(".")[0])


def matrices(module: nn.Module) -> list[Tensor]:
    """The weights that learn, also those behind a parametrisation."""
    found = [p for name, p in module.named_parameters() if "bias" not in name and p.dim() > 1]
    return [p for p in found if p.requires_grad]


BORROWED = {"tied_autoencoder": {"encoder": 2}}
"""Weights that a function uses too, where no hook sees it."""


def check(model: nn.Module, inputs: Any, mode: str, name: str, all_of_them: bool = True) -> None:
    ran = dict(weighted_calls(model, inputs)) | BORROWED.get(name, {})
    rr = classic(model, inputs, mode=mode, weight=0.5)
    entries = list(rr.plan)
    listed = Counter(entry.name.partition("#")[0] for entry in entries)
    assert {one: listed[one] for one in ran} == ran, "every weighted layer is in the plan, as often as it runs"
    assert [entry.name for entry in entries if not entry.constrained and not entry.reason] == []
    assert len({entry.name for entry in entries}) == len(entries)
    constrained = [entry.name for entry in entries if entry.constrained]
    frozen = {entry.name for entry in entries if entry.reason.startswith("frozen")}
    assert all(not matrices(owner(model, one)) for one in frozen)
    if all_of_them:
        assert set(constrained) | frozen >= set(ran)

    _, loss = call(rr, inputs)
    assert loss.isfinite()
    assert loss > 0
    assert list(rr.terms) == constrained
    total = sum(rr.terms.values())
    torch.testing.assert_close(loss.detach(), 0.5 * total)
    model.zero_grad()
    loss.backward()
    without = []
    for one in constrained:
        weights = matrices(owner(model, one))
        if weights and not any(p.grad is not None and bool((p.grad != 0).any()) for p in weights):
            without.append(one)
    assert without == [], "these feel nothing of the loss"
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize("name", NETWORKS)
def test_our_networks(name: str):
    check(*NETWORKS[name](), "auto", name)


@pytest.mark.zoo
@pytest.mark.parametrize("name", HF_MODELS)
def test_hugging_face(name: str):
    """Some also layer by layer: a net with norms, one with windows, one with two stacks."""
    model, inputs = HF_MODELS[name]()
    for mode in ("auto", "layerwise") if name in ("resnet", "swin", "t5") else ("auto",):
        check(model, inputs, mode, name)


@pytest.mark.zoo
@pytest.mark.parametrize("name", HF_MODELS)
def test_a_slice_is_the_first_sample(name: str):
    """Wherever the model puts the batch, and in eval, where norms and dropout see every sample alone."""
    model, inputs = HF_MODELS[name]()
    model = model.double().eval()
    inputs = {key: x.double() if x.is_floating_point() else x for key, x in inputs.items()}
    first = {key: x[:1] for key, x in inputs.items()}
    _, slice_loss = classic(model, inputs, scale="mean", fraction=1 / 3)(**inputs)
    _, loss = classic(model, first, scale="mean")(**first)
    torch.testing.assert_close(slice_loss, loss, rtol=1e-8, atol=1e-12)


# --- torchvision and timm, where they work ------------------------------------------------------------------------


def missing(package: str) -> str:
    """Why a package cannot be used; empty if it can."""
    try:
        importlib.import_module(package)
    except Exception as error:  # torchvision for CUDA beside torch for CPUs raises a RuntimeError
        return f"{package} does not work here: {type(error).__name__}"
    return ""


@pytest.mark.zoo
@pytest.mark.slow
@pytest.mark.parametrize("mode", ["auto", "layerwise"])
@pytest.mark.parametrize("name", GPU_MODELS)
def test_torchvision_and_timm(name: str, mode: str):
    if reason := missing(name.partition(":")[0]):
        pytest.skip(reason)
    model, x = GPU_MODELS[name]()
    for parameter in model.parameters():  # a weight of zeros has no gradient: MᵀM d is flat there
        if not parameter.any():
            nn.init.normal_(parameter, std=0.02)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    check(model.to(device), x.to(device), mode, name, all_of_them=False)
