"""--weights FILE: what is loaded, and what is refused."""

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from racecar.cli.target.state_files import load_weights


def net(seed: int, classes: int = 5) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, classes))


@pytest.mark.parametrize(
    "wrap",
    [
        lambda state: state,
        lambda state: {"state_dict": state, "epoch": 3},
        lambda state: {"model": state},
        lambda state: {f"module.{name}": weight for name, weight in state.items()},
        lambda state: {f"_orig_mod.{name}": weight for name, weight in state.items()},
        lambda state: {"model": {f"module._orig_mod.{name}": weight for name, weight in state.items()}},
        lambda state: {f"_orig_mod.module.{name}": weight for name, weight in state.items()},
        lambda state: {f"model.{name}": weight for name, weight in state.items()},
        lambda state: {"state_dict": {f"module.net.model.{name}": weight for name, weight in state.items()}},
        lambda state: {name: weight for name, weight in state.items() if "num_batches" not in name},
    ],
)
def test_state_dicts_however_wrapped(tmp_path, wrap):
    source, model = net(1), net(2)
    torch.save(wrap(source.state_dict()), tmp_path / "w.pt")
    load_weights(model, tmp_path / "w.pt")
    assert all(torch.equal(model.state_dict()[name], weight) for name, weight in source.state_dict().items())


def test_safetensors(tmp_path):
    source, model = net(1), net(2)
    save_file(source.state_dict(), tmp_path / "w.safetensors")
    load_weights(model, tmp_path / "w.safetensors")
    assert torch.equal(source[0].weight, model[0].weight)


def test_names_of_the_model_itself_stay(tmp_path):
    """A model whose own names begin with "module."."""
    source, model = nn.ModuleDict({"module": net(1)}), nn.ModuleDict({"module": net(2)})
    torch.save(source.state_dict(), tmp_path / "w.pt")
    load_weights(model, tmp_path / "w.pt")
    assert torch.equal(source["module"][0].weight, model["module"][0].weight)


def test_a_tied_weight_is_needed_once(tmp_path):
    def tied():
        model = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.Linear(3, 3)})
        model["b"].weight = model["a"].weight
        return model

    source, model = tied(), tied()
    state = source.state_dict()
    del state["b.weight"]
    torch.save(state, tmp_path / "w.pt")
    load_weights(model, tmp_path / "w.pt")
    assert torch.equal(model["b"].weight, source["a"].weight)


def test_what_does_not_fit_is_named_and_nothing_is_loaded(tmp_path):
    state = net(1, classes=7).state_dict()
    state["extra.weight"] = state.pop("0.bias")
    torch.save(state, tmp_path / "w.pt")
    model = net(2)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    with pytest.raises(ValueError, match="do not fit Sequential") as caught:
        load_weights(model, tmp_path / "w.pt")
    message = str(caught.value)
    assert "1 missing: 0.bias" in message
    assert "1 unexpected: extra.weight" in message
    assert "2 of another shape: 3.weight is 7×4 there and 5×4 in the model" in message
    assert all(torch.equal(before[name], weight) for name, weight in model.state_dict().items())


class Code:
    """Something that only pickle could bring back."""


def test_unreadable_files(tmp_path):
    (tmp_path / "noise.pt").write_bytes(b"\x00\x01noise")
    (tmp_path / "noise.safetensors").write_bytes(b"noise")
    torch.save({"weights": Code()}, tmp_path / "code.pt")
    torch.save([1, 2], tmp_path / "list.pt")
    torch.save({"state_dict": {"a": 1}}, tmp_path / "numbers.pt")
    for name, words in (
        ("none.pt", "there is no weights file"),
        ("noise.pt", "cannot be read by torch.load"),
        ("noise.safetensors", "cannot be read by safetensors"),
        ("code.pt", "holds more than tensors"),
        ("list.pt", "holds no state dict"),
        ("numbers.pt", "holds no state dict"),
    ):
        with pytest.raises(ValueError, match=words):
            load_weights(net(0), tmp_path / name)


SPECIAL = {
    "sparse": (lambda bias: bias.to_sparse(), "0.bias in w.pt is sparse"),
    "without numbers": (lambda bias: bias.to("meta"), "0.bias in w.pt is on the meta device"),
    "nested": (lambda bias: torch.nested.nested_tensor([bias[:1], bias[1:]]), "0.bias in w.pt is nested"),
    "complex": (lambda bias: bias + 1j, "0.bias in w.pt holds complex64, and the model has float32 there"),
    "whole numbers": (lambda bias: bias.char(), "0.bias in w.pt holds int8"),
    "NaN": (lambda bias: bias * float("nan"), "0.bias in w.pt holds NaN"),
    "infinite": (lambda bias: bias / 0, "0.bias in w.pt holds what is infinite as float32"),
    "infinite here": (lambda bias: bias.double() + 1e300, "0.bias in w.pt holds what is infinite as float32"),
}


@pytest.mark.parametrize("kind", SPECIAL)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_weights_that_no_net_has_are_refused(cli, refused, tmp_path, kind):
    cli("explain", "nets:conv", "--input", "1,3,8,8")
    import nets

    change, words = SPECIAL[kind]
    state = nets.conv().state_dict()
    torch.save({**state, "0.bias": change(state["0.bias"])}, tmp_path / "w.pt")
    assert words in refused("explain", "nets:conv", "--input", "1,3,8,8", "--weights", "w.pt")


def test_names_are_texts(refused, tmp_path):
    for name in (0, None, ("0", "bias")):
        torch.save({name: torch.zeros(1)}, tmp_path / "w.pt")
        assert "holds no state dict" in refused("explain", "nets:conv", "--input", "1,3,8,8", "--weights", "w.pt")


def test_a_buffer_may_be_infinite(tmp_path):
    """An attention mask may hold −inf; integers of another type are converted."""

    def masked():
        model = net(1)
        model.register_buffer("mask", torch.tensor([0.0, float("-inf")]))
        return model

    source, model = masked(), masked()
    torch.save({name: weight.half() for name, weight in source.state_dict().items()}, tmp_path / "w.pt")
    load_weights(model, tmp_path / "w.pt")
    assert model.mask.tolist() == [0, float("-inf")]


def test_one_flipped_bit_is_noticed(cli, refused, tmp_path):
    """By the checksums in a file of torch.save; a file without checksums can still be read."""
    cli("explain", "nets:conv", "--input", "1,3,8,8")
    import nets

    state = nets.conv().state_dict()
    arguments = ("explain", "nets:conv", "--input", "1,3,8,8", "--weights", "w.pt")
    checked = torch.serialization.get_crc32_options()
    for written in (False, True):
        torch.serialization.set_crc32_options(written)
        try:
            torch.save(state, tmp_path / "w.pt")
        finally:
            torch.serialization.set_crc32_options(checked)
        assert cli(*arguments).status == 0
    content = bytearray((tmp_path / "w.pt").read_bytes())
    content[content.index(state["0.weight"].numpy().tobytes()) + 3] ^= 0x80  # a sign
    (tmp_path / "w.pt").write_bytes(content)
    assert "is damaged" in refused(*arguments)


def test_from_the_command_line(cli, refused, tmp_path):
    torch.save({"fc.weight": torch.zeros(2, 2)}, tmp_path / "w.pt")
    line = refused("explain", "nets:conv", "--input", "1,3,8,8", "--weights", "w.pt")
    assert "the weights of w.pt do not fit Sequential" in line
    import nets

    torch.save(nets.conv().state_dict(), tmp_path / "w.pt")
    assert cli("explain", "nets:conv", "--input", "1,3,8,8", "--weights", "w.pt").status == 0
