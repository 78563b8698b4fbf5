"""Networks that take turns, against a loop written by hand; interrupted and resumed."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from racecar import Racecar
from racecar.cli.app import run as command
from racecar_lab.experiment import Measured, Stage
from racecar_lab.experiments import EXPERIMENTS
from racecar_lab.networks.dense import dense
from racecar_lab.running.engines import here, pool
from racecar_lab.running.jobs import make_jobs
from racecar_lab.running.results import Store
from racecar_lab.running.starting import begin, training
from racecar_lab.training import rng
from racecar_lab.training.recipe import Recipe, Turn
from racecar_lab.training.single import Single
from racecar_lab.training.spec import Training, TrainingOptions
from racecar_lab.training.train import Trainer
from racecar_lab.training.variants import VARIANTS
from tests.lab.tiny import plain, results, run
from tests.lab.toy import LATENT, LOSSES, Toy, ToyConfig, cut, jobs

TRAIN, BATCH, STEPS = 26, 8, 3


def result(folder, variant, stage):
    (record,) = [r for r in results(folder).values() if (r["variant"], r["stage"]) == (variant, stage)]
    return record


def regularised(network, example, variant):
    """The network as a loss calls it, and a list of the regularisers of its calls."""
    if variant == "Std":
        return network, []
    rr, terms = Racecar(network, example, mode="full", weight=1.0, scale="mean"), []

    def call(x):
        output, loss = rr(x)
        terms.append(loss)
        return output

    return call, terms


def step(optimiser, task, terms):
    """A step on the task's loss and the mean of the regularisers; both as numbers."""
    regulariser = torch.stack(terms).mean() if terms else torch.zeros(())
    terms.clear()
    optimiser.zero_grad()
    (task + 0.3 * regulariser).backward()
    optimiser.step()
    return task.item(), regulariser.item()


def latent(turn, epoch):
    generator = rng.generator("latent", 0, f"GAN, turn {turn}", epoch)
    return torch.randn(STEPS, BATCH, LATENT, generator=generator)


def gan_by_hand(variant, norm=False, epochs=2):
    x = Toy().data(ToyConfig(), 0, None)["A"].train.x
    torch.manual_seed(rng.seed_of("network", "toy", 0))
    g, d = dense((LATENT, 5, 6), nn.Tanh, norm=norm), dense((6, 5, 1), nn.Tanh)
    adam_g, adam_d = torch.optim.Adam(g.parameters(), 1e-2, (0.5, 0.9)), torch.optim.Adam(d.parameters(), 2e-2)
    call_g, terms_g = regularised(g, torch.randn(8, LATENT), variant)
    call_d, terms_d = regularised(d, x[:8], variant)
    losses = []
    for epoch in range(epochs):
        order = rng.order(TRAIN, BATCH, 0, "GAN", epoch)
        for chosen, first, second in zip(order, latent(0, epoch), latent(1, epoch), strict=True):
            fake = g(first).detach()
            task = (F.softplus(-call_d(x[chosen])) + F.softplus(call_d(fake))).mean()
            losses.append(step(adam_d, task, terms_d) + step(adam_g, F.softplus(-d(call_g(second))).mean(), terms_g))
    return nn.ModuleDict({"generator": g, "discriminator": d}), torch.tensor(losses).view(epochs, STEPS, 4).mean(1)


def autoencoder_by_hand(variant, gan):
    x = Toy().data(ToyConfig(), 0, None)["A"].train.x
    g, d = gan["generator"], gan["discriminator"]
    torch.manual_seed(rng.seed_of("network", "toy", 0))
    dense((LATENT, 5, 6), nn.Tanh), dense((6, 5, 1), nn.Tanh)  # takes the random numbers of the first stage
    net, d = nn.Sequential(*copy.deepcopy(d)[:-1], nn.Linear(5, LATENT), *g), d.eval()
    net.train()
    optimiser = torch.optim.Adam(net.parameters(), 1e-2)
    call, terms = regularised(net, x[:8], variant)
    for epoch in range(3):
        for chosen in rng.order(TRAIN, BATCH, 0, "AE", epoch):
            again = call(x[chosen])
            task = F.mse_loss(again, x[chosen]) + F.mse_loss(d[:-1](again), d[:-1](x[chosen]).detach())
            step(optimiser, task, terms)
    return nn.ModuleDict({"autoencoder": net, "critic": d})


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("variant", ["Std", "RR"])
def test_both_stages_are_plain_loops(variant, norm, tmp_path):
    """Results equal those of the loop bit for bit; the command line runs them as any other experiment."""
    EXPERIMENTS["toy"] = Toy()
    try:
        options = ["--variants", variant, "--workers", "1", "--out", str(tmp_path), "--set", f"norm={norm}"]
        assert command(["run", "toy", *options]) == 0
    finally:
        del EXPERIMENTS["toy"]
    gan, means = gan_by_hand(variant, norm)
    got = result(tmp_path, variant, "GAN")
    assert plain(got["weights"]) == plain(gan.state_dict())
    names = [f"{net}_{part}" for net in ("discriminator", "generator") for part in ("loss", "regulariser")]
    assert got["curves"].keys() == {"epoch", *names}
    torch.testing.assert_close(torch.tensor([got["curves"][name] for name in names]).t(), means)
    assert (means[:, 1::2] > 0).all() == (variant == "RR")
    assert got["steps"] == 2 * 2 * STEPS
    after = result(tmp_path, variant, "AE")
    assert plain(after["weights"]) == plain(autoencoder_by_hand(variant, gan).state_dict())
    for name, value in after["weights"].items():
        if name.startswith("critic."):
            assert torch.equal(value, got["weights"][name.replace("critic", "discriminator")]), "it only judges"


def test_looks_keep_pictures(tmp_path):
    """Snapshots show the model in evaluation mode, from its initial to its final weights."""
    assert run(jobs(["RR"], norm=True), tmp_path) == []
    got = result(tmp_path, "RR", "GAN")
    kept = got["arrays"]["pictures"]
    assert kept.shape == (3, 4, 6)
    for epochs, pictures in ((0, kept[0]), (2, kept[2])):
        model = gan_by_hand("RR", True, epochs)[0] if epochs else nn.ModuleDict({"generator": _first()})
        z = torch.randn(4, LATENT, generator=rng.generator("pictures"))
        assert torch.equal(pictures, model["generator"].eval()(z))


def test_a_turn_may_come_twice(tmp_path, monkeypatch):
    """A turn that is listed twice has one optimiser, and random numbers of its own each time."""
    critic, generator = Toy().recipe(ToyConfig(), Stage("GAN")).turns
    (job,), latents = jobs(["Std"]), []

    def loss(net, batch, networks):
        latents.append(batch.latent)
        return critic.loss(net, batch, networks)

    turn = replace(critic, loss=loss)
    task, stage = Toy().data(job.config, 0, None)["A"], job.stages[0]
    of_job = training(job, stage, task, begin(job, stage, task, Store(tmp_path), "cpu"))
    nets = Single(replace(of_job, recipe=Recipe(turns=(turn, turn, generator))), TrainingOptions())
    (outcome,) = Trainer(nets).run()
    counts = [int(step.optimiser.state_dict()["state"][0]["step"]) for step in nets.distinct_steps]
    assert (outcome.steps, counts) == (18, [12, 6])
    assert len({tuple(z.flatten().tolist()) for z in latents}) == len(latents) == 12


@pytest.mark.parametrize("on, decay", [(True, 0.4), (False, 0.1)])
def test_weight_decay_of_a_turn(on, decay):
    """Every turn has the configuration's; that of variant WD is added if the turn has the regulariser."""
    task, config = Toy().data(ToyConfig(), 0, None)["A"], ToyConfig(weight_decay=0.1)
    turn = Turn(lambda call, batch, networks: call(batch.x).square().mean(), regularised=on)
    model, recipe = dense((6, 5), nn.Tanh), Recipe(turns=(turn,))
    nets = Single(Training(model, task, config, recipe, variant=VARIANTS["WD"], weight=0.3), TrainingOptions())
    (group,) = nets.distinct_steps[0].optimiser.param_groups
    assert group["weight_decay"] == pytest.approx(decay)


def test_networks_may_have_parts_in_common(tmp_path):
    """Parameters that a trained network shares with an untrained one are trained."""
    (job,) = jobs(["Std"])
    shared, task = nn.Linear(6, 6), Toy().data(job.config, 0, None)["A"]
    model = nn.ModuleDict({"a": nn.Sequential(shared, nn.Linear(6, 6)), "b": nn.Sequential(shared, nn.Linear(6, 6))})
    before = copy.deepcopy(model.state_dict())

    def loss(net, batch, networks):
        return (net(batch.x) - networks["b"](batch.x)).square().mean()

    recipe = Recipe(turns=(Turn(loss, "a"),))
    Trainer(Single(Training(model, task, job.config, recipe), TrainingOptions())).run()
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"a.0.weight", "a.0.bias", "b.0.weight", "b.0.bias", "a.1.weight", "a.1.bias"}


def _first():
    torch.manual_seed(rng.seed_of("network", "toy", 0))
    return dense((LATENT, 5, 6), nn.Tanh, norm=True)


# Interrupted and resumed


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    assert run(jobs(norm=True), folder) == []
    return plain(results(folder))


@pytest.mark.parametrize("losses", range(2, 9))
@pytest.mark.parametrize("variant", ["Std", "RR"])
def test_resumed_bit_for_bit(variant, losses, whole, tmp_path):
    """The training is interrupted after every turn on the first batches of a GAN."""
    todo, planning = jobs([variant], norm=True), 0 if variant == "Std" else 2
    assert len(cut(todo, tmp_path, losses + planning)) == 1
    (path,) = (tmp_path / "checkpoints").iterdir()
    assert torch.load(path)["step"] == losses - 1
    assert run(todo, tmp_path) == []
    assert plain(results(tmp_path)) == {id: record for id, record in whole.items() if record["variant"] == variant}


@pytest.mark.timeout(90)
@pytest.mark.soak
def test_workers_resume(whole, tmp_path, monkeypatch):
    """Two jobs interrupted between two turns are resumed in a new process; only one, because it starts slowly."""
    monkeypatch.setattr(pool, "cores", lambda: 1)
    monkeypatch.setattr(
        here, "share_out", lambda jobs, work, name, _, *rest: pool.share_out(jobs, work, name, 1, *rest)
    )
    todo = jobs(norm=True)
    for job in todo:
        cut([job], tmp_path, LOSSES[job.variant])
    assert [torch.load(path)["step"] for path in (tmp_path / "checkpoints").iterdir()] == [3, 3]
    assert run(todo, tmp_path, workers=2) == []
    assert plain(results(tmp_path)) == whole


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("how", ["graphs", "compile"])
def test_on_a_gpu(how, tmp_path):
    """CUDA graphs and compiled steps give the results of eager ones; resumed, graphs give the same bits.
    (Without norms: the gradient of a bias before one is rounding alone, which Adam enlarges.)"""
    todo, fast = jobs(), {"device": "cuda", how: True}
    assert run(todo, tmp_path / "eager", device="cuda") == []
    assert run(todo, tmp_path / "fast", **fast) == []
    eager, whole = results(tmp_path / "eager"), results(tmp_path / "fast")
    for id, record in whole.items():
        torch.testing.assert_close(record["weights"], eager[id]["weights"], rtol=1e-3, atol=1e-4)
    for job in todo if how == "graphs" else ():
        assert len(cut([job], tmp_path / "parts", LOSSES[job.variant], **fast)) == 1
        assert run([job], tmp_path / "parts", **fast) == []
        for id, record in results(tmp_path / "parts").items():
            assert plain(record["weights"]) == plain(whole[id]["weights"])


# One network alone


class Alone(Toy):
    """One network with a loss of the batch and its random numbers, recorded and by the vmap engine."""

    name = "alone"

    def stages(self, config):
        return (Stage("AE"),)

    def networks(self, config, stage, earlier, dropout=0.0):
        return dense((6, 4, 6), nn.Tanh)

    def recipe(self, config, stage):
        def loss(net, batch, networks):
            return F.mse_loss(net(batch.x + 0.1 * batch.latent), batch.x)

        return Recipe(turns=(Turn(loss, lr=2e-2, schedule="cosine", latent=(6,)),), steady=True)

    def measure(self, config, trained):
        return Measured({"none": 0.0})


@pytest.mark.parametrize("variant", ["Std", "RR"])
def test_one_network_with_a_loss_of_its_own(variant, tmp_path):
    """A denoising autoencoder, whose turn has its own learning rate: recorded, by vmap, and by hand."""
    todo = make_jobs(Alone(), ToyConfig(), [variant], [0, 1], None)
    for engine in ("here", "vmap"):
        assert run(todo, tmp_path / engine, engine) == []
    torch.manual_seed(rng.seed_of("network", "alone", 0))
    net, x = dense((6, 4, 6), nn.Tanh), Toy().data(ToyConfig(), 0, None)["A"].train.x
    optimiser = torch.optim.Adam(net.parameters(), 2e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 2 * STEPS)
    call, terms = regularised(net, x[:8], variant)
    for epoch in range(2):
        noise = torch.randn(STEPS, BATCH, 6, generator=rng.generator("latent", 0, "AE", epoch))
        for chosen, more in zip(rng.order(TRAIN, BATCH, 0, "AE", epoch), noise, strict=True):
            step(optimiser, F.mse_loss(call(x[chosen] + 0.1 * more), x[chosen]), terms)
            schedule.step()
    for engine in ("here", "vmap"):
        weights = Store(tmp_path / engine).weights(todo[0].ids["AE"])
        torch.testing.assert_close(weights, dict(net.state_dict()), rtol=1e-4, atol=1e-5)
