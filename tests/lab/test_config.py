"""Settings: every field can be changed, names and types are checked, and what makes no sense is refused."""

import functools
import json
import math
import re
import typing
from dataclasses import FrozenInstanceError, dataclass, fields
from typing import Literal

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from racecar.reverse.terms import GRADIENTS, REDUCTIONS, SCALES
from racecar_lab.config import Config, changed, override, parse
from racecar_lab.experiments import EXPERIMENTS
from racecar_lab.training.loss_config import LossConfig

hints = functools.cache(typing.get_type_hints)
CONFIGS = {"base": Config, **{name: one.Config for name, one in EXPERIMENTS.items()}}
CHOICES = {
    "nets": (("linear",), ("two", "norm"), ("linear", "norm", "two")),
    **dict.fromkeys(("LongTrainingConfig.widths", "TextureShapeConfig.widths"), ((2, 3, 4), (64, 128, 256))),
    **dict.fromkeys(("SmokeConfig.widths", "SmokeAutoencoderConfig.widths"), ((2, 3, 4, 3, 2), (8, 16, 16, 8, 8))),
    "critic_widths": ((2, 3), (8, 16, 32)),
    "channels": ((2, 3), (64, 128)),
    "DisentangleConfig.samples": (2, 10, 10_000),
    "fold": (None, 0, 4),
    "size": (8, 64, 224),
    "HindcastConfig.size": (16, 64),
    "system": ("waves", "advection"),
    "SequencesConfig.layers": (1, 2, 3),
    "length": (2, 20, 100),
    **dict.fromkeys(("noise", "blur", "contrast"), ((0.1, 0.3), (1.0, 2.5))),
    "scale": SCALES,
    "gradient": GRADIENTS,
    "reduction": REDUCTIONS,
    "labels": ((2,), (2, 10), (5, 50, 250)),
    "tune_lrs": ((1e-3,), (1e-3, 1e-2)),
    "depth": (3, 6, 9, 30),
    "losses": ((), ("both:mean:full",), ("both:mean:full:0.1", "weights:sum:layerwise")),
    "weights": ((0.1,), (0.01, 1.0)),
    "depths": ((3,), (6, 12)),
    "starts": (("he",), ("torch", "orthogonal")),
    "norms": (("none",), ("batch", "group")),
    "lrs": ((1e-3,), (1e-3, 3e-3)),
}
"""Values of fields whose type does not say which there are."""
UNIT = {**dict.fromkeys(("ema", "valid"), (0, 0.99)), **dict.fromkeys(("fraction", "share", "slim"), (0.01, 1))}
UNIT["cost"] = (1, 1e6)
UNIT["judge_accuracy"] = (0, 1)
HELD = [
    CONFIGS[name]
    for name in (
        "base", "information", "mnist", "few-labels", "long-training", "shift", "sequences", "texture-shape", "smoke",
        "smoke-autoencoder", "disentangle", "hindcast",
    )
]  # fmt: skip
"""Those that can hold samples out."""
LOSSES = [name for name, one in EXPERIMENTS.items() if issubclass(one.Config, LossConfig)]
"""Those whose loss can be chosen."""


def written(value):
    """A value as a user writes it."""
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


@dataclass(frozen=True, kw_only=True)
class Odd(Config):
    """Kinds of fields that the experiments may come to have."""

    kind: Literal["a", "b"] = "a"
    depth: Literal[3, 6] = 3
    maybe: float | None = None
    widths: tuple[int, ...] = (3, 2)
    flag: bool = False


def drawn(config, name, data):
    """A value that a field can have."""
    kind = hints(config)[name]
    choices = CHOICES.get(f"{config.__name__}.{name}", CHOICES.get(name))
    if typing.get_origin(kind) is Literal:  # all three of a plain twin are "none", and a single one is refused
        choices = [one for one in typing.get_args(kind) if one != "none" or name not in ("mode", "gradient", "scale")]
    if choices:
        return data.draw(st.sampled_from(choices), name)
    if kind is bool:
        return data.draw(st.booleans(), name)
    if kind is int:
        return data.draw(st.integers(1, 10**6), name)
    return data.draw(st.floats(*UNIT.get(name, (1e-12, 1e6))), name)


SOME = {name: one for name, one in CONFIGS.items() if name != "streams"}
"""It refuses what its training does not have."""


@pytest.mark.parametrize("config", SOME.values(), ids=SOME)
@settings(max_examples=settings.default.max_examples // 2, phases=[Phase.generate])
@given(data=st.data())
def test_any_field_can_be_changed(config, data):
    """Each by itself, and no other with it."""
    before, wrong = config(), []
    for name in (f.name for f in fields(config)):
        if name == "valid" and config not in HELD:
            continue
        value = drawn(config, name, data)
        after = override(before, [f"{name}={written(value)}"])
        same = {f.name: getattr(after, f.name) for f in fields(config)} == {**vars(before), name: value}
        if not same or type(after) is not config or type(getattr(after, name)) is not type(value):
            wrong.append((name, value, after))
        if changed(after) != ({} if value == getattr(before, name) else {name: value}):
            wrong.append((name, value, changed(after)))
    assert not wrong


@pytest.mark.parametrize(
    "text, value",
    [
        ("maybe=none", None),
        ("maybe=", None),
        ("maybe=2e-3", 2e-3),
        ("widths=12, 10,7", (12, 10, 7)),
        ("flag=yes", True),
        ("flag=TRUE", True),
        ("flag=0", False),
        (" epochs = 12 ", 12),
        ("kind=b", "b"),
        ("depth=6", 6),
        ("lr=1", 1.0),
        ("lr=1e-4", 1e-4),
    ],
)
def test_how_values_are_written(text, value):
    name = text.partition("=")[0].strip()
    found = getattr(override(Odd(flag=value is False, maybe=1.0), [text]), name)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "text, words",
    [
        ("epohcs=3", "no setting 'epohcs'; did you mean 'epochs'?"),
        ("optimizer=sgd", "did you mean 'optimiser'?"),
        ("wat=1", "the settings are: batch, "),
        ("=1", "no setting ''"),
        ("lr", "write name=value"),
        ("", "write name=value"),
        ("epochs=1e3", "epochs must be of type int, not '1e3'"),
        ("epochs=2.5", "epochs must be of type int"),
        ("lr=fast", "lr must be of type float, not 'fast'"),
        ("lr=", "lr must be of type float, not ''"),
        ("lr=1,2", "lr must be of type float"),
        ("flag=maybe", "flag must be of type bool"),
        ("widths=1,x", "widths must be of type int"),
        ("maybe=x", "maybe must be of type float"),
        ("kind=c", "kind must be one of a, b, not 'c'"),
        ("kind=", "kind must be one of a, b, not ''"),
        ("depth=4", "depth must be one of 3, 6, not '4'"),
    ],
)
def test_names_and_types(text, words):
    with pytest.raises(ValueError, match=re.escape(words)) as error:
        override(Odd(), [text])
    assert "\n" not in str(error.value)


def allowed(config, texts):
    """Those of some changes that are not refused by the name of their setting."""
    found = []
    for text in texts:
        try:
            override(config(), [text])
        except ValueError as error:
            if text.partition("=")[0] in str(error):
                continue
        found.append(text)
    return found


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_every_number_is_finite(config):
    """Others could not be written into a record; the setting is named before anything is trained."""
    numbers = [name for name, kind in hints(config).items() if kind is float]
    assert numbers
    assert not allowed(config, [f"{name}={number}" for name in numbers for number in ("nan", "inf", "-inf")])


SENSELESS = (
    "optimiser=adamm", "schedule=cos", "precision=half", "epochs=0", "epochs=-1", "lr=0", "lr=-1e-3", "batch=-1",
    "clip=-0.1", "momentum=-0.1", "ema=1", "ema=-0.1", "valid=1", "valid=-0.1", "fraction=0", "fraction=1.1",
    "every=0", "weight_decay=-0.1",
)  # fmt: skip


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_values_that_make_no_sense(config):
    assert not allowed(config, SENSELESS)


OWN = {
    "information": ("source=mat", "finetune=0", "finetune=-3"),  # 0 must not become "as many as the first phase has"
    "peaks": ("nets=two,three", "nets=", "nets=two,two", "weight=-1", "beta=-1", "valid=0.2"),  # it holds nothing out
    "digits": ("weight=-1", "beta=-1", "valid=0.2"),
}


@pytest.mark.parametrize("name", [*LOSSES, *(name for name in OWN if name not in LOSSES)])
def test_own_settings_that_make_no_sense(name):
    loss = ("scale=big", "gradient=d", "reduction=max", "weight=-1") if name in LOSSES else ()
    assert not allowed(CONFIGS[name], (*OWN.get(name, ()), *loss))


def test_what_is_none_of_the_choices_is_refused():
    """Of any configuration, whoever makes it: no field of its own kind checks itself."""
    for config in (*CONFIGS.values(), Odd):
        for name, hint in typing.get_type_hints(config).items():
            if typing.get_origin(hint) is Literal:
                known = ", ".join(map(str, typing.get_args(hint)))
                with pytest.raises(ValueError, match=f"^{name} must be one of {known}, not 'none of them'$"):
                    config(**{name: "none of them"})


def test_later_ones_win():
    assert override(Config(), ["lr=1", "epochs=3", "lr=2"]) == Config(lr=2.0, epochs=3)


def test_the_given_one_stays():
    config = Config()
    override(config, ["lr=1"])
    assert config == Config()
    with pytest.raises(FrozenInstanceError):
        config.lr = 1.0


@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.parametrize("quick", [False, True])
def test_records_hold_every_field(name, quick):
    one = EXPERIMENTS[name]
    config = one.Config(**(one.quick.settings if quick else {}))
    held = config.to_dict()
    assert list(held) == [f.name for f in fields(config)]
    assert json.loads(json.dumps(held, allow_nan=False)) == held
    again = one.Config(**{key: tuple(value) if isinstance(value, list) else value for key, value in held.items()})
    assert again == config
    assert changed(config) == (one.quick.settings if quick else {})
    assert type(config)(**changed(config)) == config


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_come_through_exactly(value):
    assert parse(repr(value), float, "x") == value
    assert math.copysign(1, parse(repr(value), float, "x")) == math.copysign(1, value)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_methods_say_which_configuration_they_take(name):
    """Their own, or what all that share the method have: mypy finds a misspelt field before it is run."""
    one = EXPERIMENTS[name]
    found = [
        (method.__name__, eval(method.__annotations__["config"], method.__globals__))
        for kind in type(one).__mro__
        for method in vars(kind).values()
        if "config" in getattr(method, "__annotations__", {})
    ]
    assert {"data", "network", "measure"} <= {method for method, _ in found}
    for method, kind in found:
        assert issubclass(one.Config, getattr(kind, "__bound__", kind)), method
