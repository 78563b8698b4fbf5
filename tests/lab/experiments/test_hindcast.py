"""Hindcast: its pairs of states, rollouts whose errors are known, the way back of each stage, its search and claims."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from racecar_lab.datasets.waves import Advection, Waves, wavenumbers
from racecar_lab.experiments import experiment
from racecar_lab.experiments.hindcast.claims import VISCOUS
from racecar_lab.experiments.hindcast.figures import all_figures, kinds_of
from racecar_lab.experiments.hindcast.measuring import SEARCHED, STEPS
from racecar_lab.experiments.hindcast.rollout import LARGEST, directions, energy_drift, relative_error, roll_out
from racecar_lab.experiments.hindcast.splitting import HORIZON
from racecar_lab.networks.periodic import CouplingNet, count_parameters, periodic
from racecar_lab.report.claims import judge
from racecar_lab.report.groups import gather
from racecar_lab.report.verdicts import CONTRADICTED, NOT_RUN, SUPPORTED, UNDECIDED
from racecar_lab.running.jobs import make_jobs
from racecar_lab.running.results import Store
from racecar_lab.running.search import best, trials
from tests.lab.experiments.contract_cases import CONFIGS
from tests.lab.report.records import record, runs
from tests.lab.tiny import run

HINDCAST, TINY = experiment("hindcast"), CONFIGS["hindcast"]


def starts(system, count=3):
    return system.initial(count, 16, torch.Generator().manual_seed(0))


# Data


@pytest.mark.parametrize("system", ["waves", "advection"])
@pytest.mark.parametrize("viscosity", [0.0, 0.1])
def test_pairs_are_a_step_apart(system, viscosity):
    config = replace(TINY, system=system, viscosity=viscosity)
    tasks = HINDCAST.data(config, 0, None)
    for split in (tasks["A"].train, tasks["A"].test):
        torch.testing.assert_close(config.solver.solve(split.x, 1.0), split.y)
    for name in ("train", "test"):
        forward, back = (getattr(tasks[task], name) for task in ("A", "backward"))
        assert forward.x is back.y
        assert forward.y is back.x
    assert len(tasks["A"].train) == TINY.samples


def test_training_states_are_of_any_age_and_test_states_are_drops():
    task = HINDCAST.data(replace(TINY, samples=200), 0, None)["A"]
    assert not task.test.x[:, 1].any()  # at rest
    still = (task.train.x[:, 1].flatten(1).norm(dim=1) == 0).float().mean()
    assert still < 4 / HORIZON


def test_a_step_is_a_real_change():
    """A forecast of no change is a bad one, from the start on."""
    for system in (Waves(), Advection()):
        state = system.initial(8, 64, torch.Generator().manual_seed(0))
        assert (relative_error(state, system.solve(state, 1.0)) > 0.4).all()


def test_how_much_the_waves_forget():
    state = Waves().initial(32, 64, torch.Generator().manual_seed(0))
    rows, columns = wavenumbers(state)
    power = torch.fft.fft2(state[:, 0].double()).abs().square().mean(0)
    forgotten = torch.exp(-VISCOUS * (rows**2 + columns**2) * HORIZON) < 0.01
    assert float((power[forgotten].sum() / power.sum()).sqrt()) == pytest.approx(0.84, abs=0.02)


@pytest.mark.parametrize("valid", [0.01, 0.99])
def test_too_little_to_hold_out(valid):
    with pytest.raises(ValueError, match="are held out: set more samples"):
        HINDCAST.data(replace(TINY, valid=valid), 0, None)


# Rollouts


@pytest.mark.parametrize("backward", [False, True])
def test_the_solver_itself_makes_no_error(backward):
    system, sign = Waves(), -1.0 if backward else 1.0
    rollout = roll_out(system, lambda x: system.solve(x, sign), starts(system), 20, backward=backward)
    assert rollout.errors.shape == (3, 20)
    assert rollout.errors.max() < 1e-4
    assert rollout.drift.max() < 1e-4
    first = system.solve(starts(system), 20.0) if backward else starts(system)
    torch.testing.assert_close(rollout.pictures[0], first[0, 0])
    assert len(rollout.pictures) == 21


def test_errors_that_are_known():
    system = Advection()
    x = starts(system)
    torch.testing.assert_close(relative_error(torch.zeros_like(x), x), torch.ones(3))
    torch.testing.assert_close(relative_error(1.5 * x, x), torch.full((3,), 0.5))
    torch.testing.assert_close(energy_drift(system, 1.5 * x, x).float(), torch.full((3,), 1.25))
    grows = roll_out(system, lambda state: 10 * system.solve(state, 1.0), x, 60, backward=False)
    torch.testing.assert_close(grows.errors[:, 0], torch.full((3,), 9.0))
    assert (grows.errors[:, 1:] == LARGEST).all()  # also when it is infinite, and nan after that
    assert (grows.drift == LARGEST).all()


def test_each_network_has_its_way_back():
    torch.manual_seed(0)
    x = starts(Waves()).double()
    coupling, plain = CouplingNet(2, 3).double(), periodic(2, 3).double()
    with torch.no_grad():
        for parameter in coupling.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    steps = directions(coupling, "A", x)
    torch.testing.assert_close(steps["backward"](steps["forward"](x)), x)
    assert directions(plain, "backward", x).keys() == {"backward"}
    assert directions(plain, "backward", x)["backward"] is plain
    transposed = nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular", bias=False).double()
    with torch.no_grad():
        transposed.weight.zero_()
        transposed.weight[0, 0, 1, 2] = transposed.weight[1, 1, 1, 2] = 1.0  # every column is its right neighbour
    net = nn.Sequential(transposed)
    back = directions(net, "A", x)["backward"]
    assert net(x).equal(x.roll(-1, 3))
    assert back(net(x)).equal(x)  # an orthogonal map: its transpose is its inverse


# Runs


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("hindcast")
    jobs = [
        job
        for system in ("waves", "advection")
        for job in make_jobs(HINDCAST, replace(TINY, system=system, samples=8), ["Std", "RR"], [0], None)
    ]
    assert run(jobs, out) == []
    return {(one.config["system"], one.variant, one.stage): one for one in Store(out).runs()}


@pytest.mark.parametrize("system, fields", [("waves", 2), ("advection", 1)])
def test_what_is_measured(finished, system, fields):
    for stage in ("A", "inverse", "half", "coupling"):
        metrics, arrays = (getattr(finished[system, "Std", stage], name) for name in ("metrics", "arrays"))
        ways = ("backward",) if stage in ("inverse", "half") else ("forward", "backward")
        kinds = {f"{way}_{count}" for way in (*ways, "persistence") for count in STEPS}
        kinds |= {f"{kind}_{way}" for way in ways for kind in ("known", "energy")} | {"parameters"}
        assert kinds <= metrics.keys() <= kinds | {"dead"}
        assert arrays["error_backward"].shape == (HORIZON,)
        assert metrics["backward_10"] == pytest.approx(float(arrays["error_backward"][9]))
        assert set(ways) <= arrays.keys()
        torch.testing.assert_close(arrays["backward"][-1], arrays["truth"][-1])  # what a hindcast is given
        if "forward" in ways:
            torch.testing.assert_close(arrays["forward"][0], arrays["truth"][0])
    whole = count_parameters(periodic(fields, TINY.width))
    sizes = {stage: finished[system, "Std", stage].metrics["parameters"] for stage in ("A", "inverse", "half")}
    assert sizes["A"] == sizes["inverse"] == whole > sizes["half"]


def test_half_the_size():
    config = HINDCAST.Config()
    half, whole = (
        count_parameters(HINDCAST.networks(config, stage, None))
        for name in ("half", "inverse")
        for stage in HINDCAST.stages(config)
        if stage.name == name
    )
    assert half == pytest.approx(whole / 2, rel=0.06)


def test_figures(finished):
    chosen = [one for (system, *_), one in finished.items() if system == "waves"]
    assert list(kinds_of(chosen, "error_backward")) == ["Std", "RR", "inverse", "half", "coupling"]
    assert list(kinds_of(chosen, "forward")) == ["Std", "RR", "coupling"]
    assert len(all_figures(chosen)) == 3
    assert len(all_figures(list(finished.values()))) == 6


def test_a_search_chooses_for_each_stage(tmp_path):
    search = replace(HINDCAST.search, lrs={"adam": (1e-3, 1e-2)}, weights={"RR": (0.0, 0.1)}, seeds=1, valid=0.25)
    config = replace(TINY, samples=8, valid=0.25)
    jobs = trials(HINDCAST, search, config, ["Std", "RR"], None)
    assert run(jobs, tmp_path) == []
    store = Store(tmp_path)
    assert all(one.metrics.keys() <= {"valid_learnt", "valid_backward", "dead"} for one in store.runs())
    chosen = best(jobs, store, replace(search, limit=("valid_learnt", 0.0)))
    assert chosen["Std"]["stages"].keys() == {"A", "inverse", "half", "coupling"}
    for choice in (*chosen["Std"]["stages"].values(), chosen["RR"]["stages"]["A"]):
        assert len(choice["tried"]) == 4
        learnt = [row["valid_learnt"] for row in choice["tried"] if row["score"] == choice["score"]]
        assert min(learnt) == min(row["valid_learnt"] for row in choice["tried"])
    backward = chosen["Std"]["stages"]["half"]["tried"][0]
    assert backward["score"] == backward["valid_learnt"]  # its one direction
    assert SEARCHED < HORIZON


# Claims


def judged(better, half, ort, known=0.0, viscosity=0.0):
    """Verdicts on made-up errors of ten seeds: RR's, the half-size net's and Ort's after ten steps back."""
    config = HINDCAST.Config(viscosity=viscosity)
    made = []
    for seed in range(10):
        jitter = 0.001 * seed
        for variant, stage, error in (
            ("Std", "A", 1.0), ("Ort", "A", ort), ("RR", "A", better), ("Std", "half", half),
        ):  # fmt: skip
            metrics = {"backward_10": error + jitter, "forward_10": 0.1 + jitter / 10, "known_backward": known}
            made.append(record(variant, seed, metrics, experiment="hindcast", stage=stage, config=config.to_record()))
    found = judge(HINDCAST.claims, gather(runs(made)))
    return {one.claim.text: one.verdict for one in found if one.verdict != NOT_RUN}


def test_refuted_if_the_half_size_net_or_ort_does_as_well():
    ours = "RR run backwards beats {}: waves"
    verdicts = judged(better=0.2, half=0.1, ort=0.2)
    assert verdicts[ours.format("Std run backwards")] == SUPPORTED
    assert verdicts[ours.format("an inverse network of half the size")] == CONTRADICTED
    assert verdicts[ours.format("Ort run backwards")] == UNDECIDED
    assert verdicts["RR forecasts as well as Std: waves"] == SUPPORTED


def test_nothing_is_claimed_of_hindcasts_where_the_system_forgets():
    text = "where the system forgets, RR run backwards knows no more of the first state than Std"
    assert text not in judged(0.2, 0.1, 0.2)
    assert judged(0.2, 0.1, 0.2, viscosity=VISCOUS) == {text: SUPPORTED}
