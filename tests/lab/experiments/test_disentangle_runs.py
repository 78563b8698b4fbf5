"""Disentangle, in small: its data, what is measured of a run, resumed runs, generators by themselves, and its claims on
made-up records."""

import math

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from racecar_lab.experiments.disentangle import codes, judge, measuring
from racecar_lab.experiments.disentangle.config import DisentangleConfig
from racecar_lab.experiments.disentangle.generators import one_hot_norm, write_generators
from racecar_lab.experiments.disentangle.splitting import digits_task
from racecar_lab.networks.infogan import generator, mirrored
from racecar_lab.report import claims
from racecar_lab.report.groups import gather
from racecar_lab.report.verdicts import CONTRADICTED, SUPPORTED
from racecar_lab.running.jobs import make_jobs
from racecar_lab.running.results import Store
from racecar_lab.training.single import Single
from tests.lab.experiments.disentangle_cases import DISENTANGLE, config, networks
from tests.lab.report.records import record, runs
from tests.lab.tiny import plain, results, run

# Measures


def test_digits_shown_are_those_of_one_in_a_hundred():
    classes = torch.cat((torch.full((195,), 7), torch.full((3,), 1), torch.full((2,), 2)))
    assert judge.digits_shown(classes) == 3
    assert judge.digits_shown(torch.cat((classes, torch.tensor([4])))) == 2  # 2 of 201 are less


def test_the_judge_is_always_the_same_and_learns():
    judge.trained_judge.cache_clear()
    torch.manual_seed(5)
    state = torch.get_rng_state()
    chosen = (True, 0, 0, 0.0)
    first = judge.trained_judge(None, chosen, 20, "cpu")
    assert torch.equal(torch.get_rng_state(), state)
    assert judge.trained_judge(None, chosen, 20, "cpu") is first
    judge.trained_judge.cache_clear()
    again = judge.trained_judge(None, chosen, 20, "cpu")
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    train = digits_task(None, *chosen).train
    assert (first.train()(train.x).argmax(1) == train.y).all()
    judge.trained_judge.cache_clear()


def test_a_bad_judge_is_refused():
    with pytest.raises(ValueError, match=r"an accuracy of 0\.0000, less than 0\.99: set more judge_epochs") as caught:
        judge.refuse_bad(judge.Judge(), 0.99)
    assert "\n" not in str(caught.value)


def test_style_is_matched_one_to_one():
    """c2 leans bars, c3 makes them wider."""
    c23 = torch.rand(40, 2, generator=torch.Generator().manual_seed(0)) * 2 - 1
    x = torch.zeros(40, 1, 28, 28)
    for picture, (lean, wide) in zip(x, c23.tolist(), strict=True):
        for row in range(4, 24):
            left = round(12 - 0.3 * lean * (row - 13.5))
            picture[0, row, left : left + 3 + round(2 * wide)] = 1
    found = measuring.style(measuring.Generated(codes.Codes(torch.zeros(40).long(), c23), x))
    assert found["slant"] > 0.95
    assert found["stroke_width"] > 0.9


def test_rows_vary_one_code():
    for which in range(3):
        found = measuring.varying(which, torch.device("cpu"))
        columns = [found.c1.view(5, 10), *found.c23.T.reshape(2, 5, 10)]
        assert [len(column[0].unique()) for column in columns] == [10 if i == which else 1 for i in range(3)]
        assert all(torch.equal(row, columns[which][0]) for row in columns[which])


# Data and runs


def test_shipped_digits_are_split_by_their_place():
    task = digits_task(None, True, 0, 0, 0.0)
    assert task.train.y.tolist() == list(range(10)) * 3
    assert task.test.y.tolist() == list(range(10))
    held = digits_task(None, True, 0, 0, 1 / 3)
    assert held.valid.y.tolist() == list(range(10))
    assert torch.equal(torch.cat((held.train.x, held.valid.x)), task.train.x)
    with pytest.raises(ValueError, match="set another share"):
        digits_task(None, True, 2, 0, 0.9)


def jobs(variants, **changes):
    return make_jobs(DISENTANGLE, config(**changes), variants, [0], None)


def test_generators_start_alike_and_own_networks_are_kept(tmp_path):
    """Every variant starts from the same generator and discriminator. λ = 0 trains the generator that Std trains."""
    all_jobs = [*jobs(("Std", "InfoGAN", "Free")), *make_jobs(
        DISENTANGLE, config(), ("Free",), [0], None, weights={"Free": [0.0]}
    )]  # fmt: skip
    assert run(all_jobs, tmp_path) == []
    store = Store(tmp_path)
    weights = {(one.variant, one.weight, one.stage): store.weights(one.id) for one in store.runs()}
    std, free = weights["Std", None, "A"], weights["Free", 1.0, "A"]
    assert any(name.startswith("head.") for name in weights["InfoGAN", 1.0, "A"])
    assert any(name.startswith("mirror.") for name in free)
    assert all(torch.equal(tensor, weights["Free", 0.0, "A"][name]) for name, tensor in std.items())
    changed = [name for name, tensor in std.items() if not torch.equal(tensor, free[name])]
    assert any(name.startswith("generator.") for name in changed)
    encoder = weights["Std", None, "E"]
    kept = {name: tensor for name, tensor in encoder.items() if name.startswith("generator.")}
    assert all(torch.equal(tensor, std[name]) for name, tensor in kept.items())
    assert len(kept) > 4


@pytest.mark.parametrize("variant, stage", [("Std", 2), ("InfoGAN", 1), ("Free", 1)])
def test_cut_and_resumed_bit_for_bit(variant, stage, tmp_path, monkeypatch):
    """With the networks and optimisers of the variant's own, and in the stage of the encoder."""
    assert run(jobs((variant,)), tmp_path / "whole") == []
    steps, train_step = [], Single.train_step

    def cut(nets, *given):
        if nets not in [other for other, _ in steps]:
            steps.append((nets, []))
        steps[-1][1].append(given)
        if len(steps) == stage and len(steps[-1][1]) == 3:
            raise InterruptedError
        return train_step(nets, *given)

    with monkeypatch.context() as patch:
        patch.setattr(Single, "train_step", cut)
        assert len(run(jobs((variant,)), tmp_path / "cut", interval=0.0)) == 1
    assert run(jobs((variant,)), tmp_path / "cut") == []
    assert plain(results(tmp_path / "cut")) == plain(results(tmp_path / "whole"))


def test_a_search_measures_generated_pictures_alone(tmp_path):
    assert run(jobs(("RR1",), valid=1 / 3), tmp_path) == []
    (found,) = (one.metrics for one in Store(tmp_path).runs())
    assert {"codes", "frechet", "digits"} <= set(found)
    assert not any(name.startswith(("real", "inverted")) for name in found)
    mean = (found["generated_accuracy"] + found["generated_c2"] + found["generated_c3"]) / 3
    assert found["codes"] == pytest.approx(mean)


def test_reader_parameters_are_those_beside_the_generator(tmp_path):
    assert run(jobs(("RR1", "InfoGAN", "Free")), tmp_path) == []
    found = {one.variant: one.metrics for one in Store(tmp_path).runs()}
    sizes = {name: sum(p.numel() for p in net.parameters()) for name, net in networks("InfoGAN").items()}
    assert found["RR1"]["reader_parameters"] == 0
    assert found["RR1"]["parameters"] == sizes["generator"] + sizes["discriminator"]
    assert found["InfoGAN"]["reader_parameters"] == sizes["head"] + sizes["discriminator"] - 7  # but its logit
    mirror = sum(p.numel() for p in mirrored(74, True, 6, (2, 3)).parameters())
    assert found["Free"]["reader_parameters"] == mirror == found["Free"]["parameters"] - found["RR1"]["parameters"]


def test_generators_by_themselves(tmp_path):
    """They load into a generator and make the pictures of the run; the inputs beside them have their codes."""
    assert run(jobs(("RR1",), norm=False), tmp_path / "out") == []
    paths = write_generators(tmp_path / "out", tmp_path / "generators")
    assert [path.name for path in paths] == ["RR1-one-hot.safetensors", "inputs-one-hot.safetensors"]
    (found,) = Store(tmp_path / "out").runs()
    with safe_open(paths[0], "pt") as file:
        assert file.metadata() == {"command": found.record["made"]["command"], "id": found.id, "seed": "0"}
    net, inputs = generator(74, False, 6, (2, 3)), load_file(paths[1])
    net.load_state_dict(load_file(paths[0]))
    trained = networks(norm=False)
    trained.load_state_dict(Store(tmp_path / "out").weights(found.id))
    torch.testing.assert_close(net(inputs["x"]), trained["generator"](inputs["x"]))
    assert torch.equal(codes.from_inputs(inputs["x"], "one-hot").c1, inputs["y"])
    assert write_generators(tmp_path / "out", tmp_path / "generators", seed=5) == []


def test_networks_have_the_papers_sizes():
    net = generator(74, norm=False)
    x = net(torch.randn(2, 74)).detach()
    assert x.shape == (2, 1, 28, 28)
    assert 0 <= float(x.min()) < float(x.max()) <= 1
    wanted = 74 * 1024 + 1024 + 1024 * 6272 + 6272 + 128 * 64 * 16 + 64 + 64 * 16 + 1
    assert sum(parameter.numel() for parameter in net.parameters()) == wanted
    assert [layer.num_features for layer in one_hot_norm() if hasattr(layer, "num_features")] == [1024, 6272, 64]


# Claims


def made_up(variant, stage, seed, norm, real, generated, frechet):
    """A record with these accuracies."""
    spread = 0.01 * math.sin(7 * seed + len(variant))
    metrics = {"real_accuracy": real + spread, "generated_accuracy": generated + spread}
    if stage == "A":
        metrics["frechet"] = frechet * (1 + spread)
    setting = {**DisentangleConfig(norm=norm).to_record(), "epochs": 50}
    return record(
        variant, seed, metrics, experiment="disentangle", stage=stage, config=setting, weight=None,
        tuned={"lr": 2e-4} | ({} if variant == "Std" else {"weight": 0.3}),
    )  # fmt: skip


MADE_UP = {("Std", "A"): 0.2, ("Std", "E"): 0.5, ("RR1", "A"): 0.8, ("InfoGAN", "A"): 0.7, ("Free", "A"): 0.9}
"""Variant and stage → accuracies."""


def verdicts(frechet, norms=(True, False)):
    """The verdict of every claim, for each norm; RR1's pictures have this Fréchet distance, and all others 10."""
    records = [
        made_up(variant, stage, seed, norm, value, value, frechet if variant == "RR1" else 10.0)
        for norm in norms
        for seed in range(10)
        for (variant, stage), value in MADE_UP.items()
    ]
    findings = claims.judge(DISENTANGLE.claims, gather(runs(records)), lambda config, name: None)
    return {(dict(one.setting).get("norm"), one.claim.text): one.verdict for one in findings}


def test_claims_on_made_up_records():
    """RR1 reads better than InfoGAN and than the encoder, worse than free weights; with and without batch norm, each by
    itself."""
    found = verdicts(10.5)
    assert len(found) == 2 * len(DISENTANGLE.claims) == 2 * 7
    for (_, text), verdict in found.items():
        assert verdict == (CONTRADICTED if "free weights" in text else SUPPORTED), text


@pytest.mark.parametrize("frechet, wanted", [(11.0, SUPPORTED), (9.0, SUPPORTED), (15.0, CONTRADICTED)])
def test_pictures_are_as_good_within_a_fifth(frechet, wanted):
    (found,) = (verdict for (_, text), verdict in verdicts(frechet, (True,)).items() if "pictures are as good" in text)
    assert found == wanted
