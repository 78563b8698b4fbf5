"""TARGET: where models come from, and what their inputs are."""

import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from racecar.cli.target.inputs import Input
from racecar.cli.target.target import open_target
from tests.hf_zoo import HF_MODELS


@pytest.fixture(autouse=True)
def _folder(cli):
    """All tests run in the folder with the module `nets`."""
    state = torch.get_rng_state()
    yield
    torch.set_rng_state(state)


def test_random_weights_follow_the_seed():
    one, same, other = (open_target("nets:flat", "1,64", seed=seed).model[0].weight for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_models_come_in_evaluation_mode():
    assert not open_target("nets:conv", "1,3,8,8").model.training


def test_an_instance_and_a_dotted_name():
    assert open_target("nets:Scope.instance", "1,4").model.out_features == 2


def test_a_model_that_says_its_input():
    assert open_target("nets:says").inputs == (Input((2, 64)),)
    assert open_target("nets:says", "5,64").inputs == (Input((5, 64)),)


def test_half_precision_becomes_float32(tmp_path):
    (tmp_path / "halves.py").write_text("import nets\ndef half(): return nets.conv().bfloat16()")
    target = open_target("halves:half", "1,3,8,8")
    assert {p.dtype for p in target.model.parameters()} == {torch.float32}


def test_double_precision_gets_double_inputs(tmp_path):
    (tmp_path / "doubles.py").write_text("import nets\ndef double(): return nets.conv().double()")
    target = open_target("doubles:double", "1,3,8,8")
    assert target.example(0).dtype == torch.float64
    target.model(target.example(0))


@pytest.mark.parametrize(
    "name, error, words",
    [
        ("nowhere.at_all:net", ImportError, "unknown target 'nowhere.at_all:net': there is no module 'nowhere.at_all'"),
        ("nets.deeper:net", ImportError, "there is no module 'nets.deeper'"),
        ("nets:none", ValueError, "unknown target 'nets:none': nets has no 'none'"),
        ("nets:width", ValueError, "nets:width could not be built: TypeError: width() missing 1 required positional"),
        ("nets:number", TypeError, "nets:number is neither callable nor a module, but int"),
        ("nets:Scope", TypeError, "nets:Scope returned Scope: it must return a torch.nn.Module"),
        ("bad_import:net", ImportError, "importing bad_import failed: ModuleNotFoundError: No module named 'gone'"),
        ("bad_syntax:net", ImportError, "importing bad_syntax failed: SyntaxError"),
        ("timm:resnet18", ImportError, "timm:NAME needs timm: pip install timm"),
        ("torchvision:resnet18", ImportError, "torchvision:NAME needs torchvision: pip install torchvision"),
        ("hf:none.json", ValueError, "unknown target 'hf:none.json': there is no file none.json"),
        ("hf:empty", ValueError, "there is no file empty/config.json"),
        ("hf:broken.json", ValueError, "hf:broken.json could not be built"),
    ],
)
def test_refused(tmp_path, monkeypatch, name, error, words):
    for library in ("timm", "torchvision", "torchvision.models"):
        monkeypatch.delitem(sys.modules, library, raising=False)
    (tmp_path / "bad_import.py").write_text("import gone")
    (tmp_path / "bad_syntax.py").write_text("def (")
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.json").write_text('{"model_type": "no such thing"}')
    with pytest.raises(error) as caught:
        open_target(name, "1,4")
    assert words in str(caught.value)


def test_timm(monkeypatch):
    def create_model(name, pretrained):
        assert not pretrained
        model = nn.Sequential(nn.Conv2d(3, 2, 3))
        model.pretrained_cfg = {"input_size": (3, 20, 24)}
        return model

    monkeypatch.setitem(
        sys.modules, "timm", SimpleNamespace(create_model=create_model, list_models=lambda: ["resnet18", "vit"])
    )
    assert open_target("timm:resnet18").inputs == (Input((1, 3, 20, 24)),)
    assert open_target("timm:resnet18.a1_in1k", "2,3,9,9").inputs == (Input((2, 3, 9, 9)),)
    with pytest.raises(ValueError, match="unknown target 'timm:resnet': timm has no such model; it has resnet18"):
        open_target("timm:resnet")


def test_torchvision_fetches_nothing(monkeypatch):
    def resnet18(*, weights="fetched", progress=True):
        assert weights is None
        return nn.Sequential(nn.Conv2d(3, 2, 3))

    def segmenter(*, weights="fetched", weights_backbone="fetched"):
        assert weights_backbone is None
        return resnet18(weights=weights)

    known = {"resnet18": resnet18, "segmenter": segmenter}
    models = SimpleNamespace(
        list_models=lambda: list(known),
        get_model_builder=known.__getitem__,
        get_model=lambda name, **settings: known[name](**settings),
    )
    monkeypatch.setitem(sys.modules, "torchvision", SimpleNamespace(models=models))
    monkeypatch.setitem(sys.modules, "torchvision.models", models)
    for name in known:
        assert open_target(f"torchvision:{name}").inputs == (Input((1, 3, 224, 224)),)
    with pytest.raises(ValueError, match="unknown target 'torchvision:other': torchvision has no such model"):
        open_target("torchvision:other")


HF_INPUTS = {
    "vit": (Input((1, 3, 32, 32), name="pixel_values"),),
    "resnet": (Input((1, 3, 224, 224), name="pixel_values"),),
    "bert": (Input((1, 16), 40, "input_ids"),),
    "gpt2": (Input((1, 16), 40, "input_ids"),),
    "t5": (Input((1, 16), 40, "input_ids"), Input((1, 16), 40, "decoder_input_ids")),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Folders with configuration and weights of tiny models."""
    folder = tmp_path_factory.mktemp("hf")
    for name in HF_INPUTS:
        HF_MODELS[name](seed=3)[0].save_pretrained(folder / name)
    return folder


@pytest.mark.parametrize("name", HF_INPUTS)
def test_hugging_face_inputs_are_accepted(saved, name):
    target = open_target(f"hf:{saved / name / 'config.json'}")
    assert type(target.model) is type(HF_MODELS[name]()[0])
    assert target.inputs == HF_INPUTS[name]
    target.model(**target.example(0))


def test_hugging_face_folder_brings_its_weights(saved):
    trained, _ = HF_MODELS["vit"](seed=3)
    loaded = open_target(f"hf:{saved / 'vit'}").model.state_dict()
    random = open_target(f"hf:{saved / 'vit' / 'config.json'}").model.state_dict()
    name = "classifier.weight"
    assert all(torch.equal(loaded[key], weight) for key, weight in trained.state_dict().items())
    assert not torch.equal(random[name], loaded[name])


def test_hugging_face_inputs_by_position_and_by_name(saved):
    config = f"hf:{saved / 'bert' / 'config.json'}"
    assert open_target(config, "2,5").inputs == (Input((2, 5), 40, "input_ids"),)
    named = "input_ids=2,5:40;token_type_ids=2,5:2"
    assert open_target(config, named).inputs == (Input((2, 5), 40, "input_ids"), Input((2, 5), 2, "token_type_ids"))
    with pytest.raises(ValueError, match="name the inputs, as in --input 'input_ids=2,5;NAME=SHAPE'"):
        open_target(config, "2,5;2,5")


@pytest.mark.parametrize("named", [None, ["pipeline"], ["NoSuchModel"]])
def test_hugging_face_without_the_name_of_a_model(tmp_path, named):
    """Without a known architecture the base model is built."""
    config = HF_MODELS["bert"]()[0].config
    config.architectures = named
    config.save_pretrained(tmp_path)
    assert type(open_target(f"hf:{tmp_path / 'config.json'}").model).__name__ == "BertModel"


def test_hugging_face_keeps_no_cache(tmp_path):
    model, _ = HF_MODELS["gpt2"]()
    model.config.use_cache = True
    model.config.save_pretrained(tmp_path)
    assert open_target(f"hf:{tmp_path / 'config.json'}").model.config.use_cache is False


def test_hugging_face_says_which_weights_are_missing(tmp_path, capsys):
    model, _ = HF_MODELS["vit"]()
    state = {name: weight for name, weight in model.state_dict().items() if "classifier" not in name}
    model.save_pretrained(tmp_path / "net", state_dict=state)
    open_target(f"hf:{tmp_path / 'net'}")
    err = capsys.readouterr().err
    assert err == "note: 2 weights are not in net and stay random: classifier.bias, classifier.weight\n".replace(
        "net", str(tmp_path / "net"), 1
    )


def test_hugging_face_without_transformers(saved, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match="needs transformers: pip install transformers"):
        open_target(f"hf:{saved / 'bert'}")


def test_the_package_that_is_named_comes_from_the_current_folder(tmp_path, monkeypatch):
    """Even if another package has its name; its own imports look there last."""
    monkeypatch.delitem(sys.modules, "this", raising=False)
    (tmp_path / "this.py").write_text(
        "import antigravity_of_ours, colorsys\nfrom nets import flat\nhue = colorsys.hsv_to_rgb"
    )
    (tmp_path / "antigravity_of_ours.py").touch()
    (tmp_path / "colorsys.py").touch()
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    before = list(sys.meta_path)
    assert open_target("this:flat", "1,64").inputs == (Input((1, 64)),)
    assert sys.modules.pop("this").__file__ == str(tmp_path / "this.py")
    assert sys.meta_path == before
