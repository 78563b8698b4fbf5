"""The reverse loss of runs: that of the library, unless a configuration says otherwise; each is judged by itself."""

from racecar.reverse.settings import Settings
from racecar.reverse.terms import GRADIENTS, REDUCTIONS, SCALES
from racecar_lab.config import choices
from racecar_lab.experiments import EXPERIMENTS, experiment
from racecar_lab.report.section import section
from racecar_lab.running.run import Run
from racecar_lab.training.loss_config import FIRST_LOSS, LOSS, LossConfig
from tests.lab.report.records import record

INFORMATION = experiment("information")
CHOSEN = [name for name, one in EXPERIMENTS.items() if issubclass(one.Config, LossConfig)]


def test_new_runs_have_the_loss_of_the_library():
    assert set(CHOSEN) == EXPERIMENTS.keys() - {"digits", "peaks", "safety", "streams"}
    usual = {"scale": Settings().scale, "gradient": Settings().reach, "reduction": Settings().reduction}
    assert usual.keys() == set(LOSS)
    assert {name: choices(LossConfig)[name] for name in LOSS} == {
        "scale": SCALES,
        "gradient": GRADIENTS,
        "reduction": REDUCTIONS,
    }
    for name in CHOSEN:
        config = experiment(name).Config()
        arguments = experiment(name).reverse(config)
        assert {field: arguments[field] for field in LOSS} == usual
        if name != "disentangle":  # its λ is for codes alone, beside a GAN's losses
            assert all(experiment(name).weight(config, which) == Settings().weight for which in ("RR", "lRR", "RR1"))


def test_losses_are_judged_apart():
    """The same claims, once for each; the page names both."""
    losses = {**FIRST_LOSS, "reduction": "mean"}, {"scale": "relative", "gradient": "reverse", "reduction": "mean"}
    records = [
        record(variant, seed, {"test_accuracy": value}, experiment="information", stage="AB",
               config=INFORMATION.Config(**loss).to_record(), weight=0.1 if variant == "RR" else None)
        for gain, loss in zip((0.0, 0.1), losses, strict=True)
        for seed in range(3)
        for variant, value in (("Std", 0.5), ("RR", 0.5 + gain + 0.01 * seed * (gain > 0)))
    ]  # fmt: skip
    page = section("information", "a", [Run(one) for one in records], INFORMATION)
    found = [one for one in page.findings if one.claim.text == "RR beats Std on swapped labels"]
    seen = {dict(one.setting)["gradient"]: (one.pairs, one.verdict) for one in found}
    assert seen == {"both": (3, "undecided"), "reverse": (3, "supported")}
    assert page.about["reverse loss"] == (
        "scale relative, gradient both, reduction mean (that of before); "
        "scale relative, gradient reverse, reduction mean (the default)"
    )
