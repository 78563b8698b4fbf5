"""The steps of every method in a stack of three nets, compared with plain torch for one net at a time, in float64."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from racecar_lab.streams import METHODS, Method, MethodSetting, StreamStack, draws, stack
from racecar_lab.streams.stack import DIRECTIONS, RANDOM, SLOTS
from tests.lab.streams import by_hand
from tests.lab.streams.by_hand import BATCH, CLASSES, CONVOLUTIONAL, DENSE, SHAPES

SEEDS = (5, 6, 7)
STEPS = 4
"""Steps that are compared: from the second on there are moments of Adam, held factors and ages."""


def nets(method, design, settings, seeds=SEEDS, optimiser="adam", **more):
    """A stack of small nets in float64."""
    shape = SHAPES[design]
    return StreamStack(
        method, design, shape, CLASSES, seeds, settings, optimiser=optimiser, dtype=torch.float64, quick=False, **more
    )


def batches(design, steps=STEPS, seeds=SEEDS):
    """Samples, labels and samples of an earlier task for every step, different for every net."""
    for step in range(steps):
        generators = [torch.Generator().manual_seed(100 * seed + step) for seed in seeds]
        x, earlier = (
            torch.stack(
                [
                    torch.randn(BATCH, *SHAPES[design], generator=generator, dtype=torch.float64)
                    for generator in generators
                ]
            )
            for _ in range(2)
        )
        yield (
            x,
            torch.stack([torch.randint(CLASSES, (BATCH,), generator=generator) for generator in generators]),
            earlier,
        )


def net(stacked, i):
    """The parameters of net i of a stack."""
    return {name: p[i].clone() for name, p in stacked.state["parameters"].items()}


class PlainSteps:
    """One net of a stack, trained by torch's own optimisers."""

    def __init__(self, stacked, i, optimiser):
        self.method, self.template = stacked.method, stacked.net
        self.start, self.parameters = net(stacked, i), net(stacked, i)
        self.key, self.lr, self.weight, self.second = stacked.state["key"][i], *stacked.settings[i].tolist()
        kinds = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}
        self.optimiser = kinds[optimiser](self.parameters.values(), self.lr)
        self.u = {n.removesuffix(".u"): v[i].clone() for n, v in stacked.state["penalty"].items() if n.endswith(".u")}
        self.count, self.ages, self.utilities, self.sums = {}, {}, {}, {}
        self.factor = 0.0

    def step(self, number, x, y, earlier):
        method, parameters = self.method, self.parameters
        for p in parameters.values():
            p.requires_grad_()
        names, tensors = list(parameters), list(parameters.values())
        logits, inputs, units = by_hand.forward(parameters, x, method)
        loss = F.cross_entropy(logits, y)
        if method.reverse:
            loss = loss + self.weight * by_hand.reverse_loss(method, parameters, x)
        gradients = torch.autograd.grad(loss, tensors, retain_graph=True)
        penalty_gradients = [torch.zeros_like(p) for p in tensors]
        if method.penalty:
            take = max(1, round(method.fraction * len(x)))
            if method.h_from == "earlier":
                inputs = by_hand.forward(parameters, earlier, method)[1]
            inputs = [h[:take] for h in inputs]
            if method.h_from == "random":
                first = number * SLOTS + RANDOM
                inputs = [draws.normal(self.key, first + i, h.shape, h.dtype) for i, h in enumerate(inputs)]
            value = by_hand.penalty(method, parameters, self.start, inputs, self.u)
            computed = torch.autograd.grad(value, tensors, allow_unused=True)
            penalty_gradients = [
                torch.zeros_like(p) if g is None else g for p, g in zip(tensors, computed, strict=True)
            ]
        factor = self.weight
        if method.coupling == "ratio":
            if number % 2 == 1:  # MEASURED is 2
                hidden = [i for i, name in enumerate(names) if name.endswith("op.weight")]
                of_task, of_penalty = (
                    torch.cat([each[i].flatten() for i in hidden]).norm() for each in (gradients, penalty_gradients)
                )
                self.factor = self.weight * of_task / of_penalty
            factor = self.factor
        for p, g, extra in zip(tensors, gradients, penalty_gradients, strict=True):
            p.grad = g if method.coupling == "decoupled" else g + factor * extra
            p.requires_grad_(False)
        self._optimise()
        with torch.no_grad():
            if method.coupling == "decoupled":
                for p, extra in zip(tensors, penalty_gradients, strict=True):
                    p -= self.lr * self.weight * extra
            self._change(number, units)
        return loss.item()

    def _optimise(self):
        if self.method.change != "continual-backprop":
            self.optimiser.step()
            return
        for p in self.parameters.values():  # Adam with a count of steps for every weight
            state = self.optimiser.state[p]
            for kind in ("exp_avg", "exp_avg_sq", "weight_steps"):
                state.setdefault(kind, torch.zeros_like(p))
            state["weight_steps"] += 1
            state["exp_avg"].mul_(0.9).add_(0.1 * p.grad)
            state["exp_avg_sq"].mul_(0.999).add_(0.001 * p.grad**2)
            mean = state["exp_avg"] / (1 - 0.9 ** state["weight_steps"])
            square = state["exp_avg_sq"] / (1 - 0.999 ** state["weight_steps"])
            p -= self.lr * mean / (square.sqrt() + 1e-8)

    def _fresh(self, number, name, shape=None):
        return self.template.fresh(self.key, number * SLOTS, name, shape)

    def _change(self, number, units):
        match self.method.change:
            case "shrink-and-perturb":
                for name, p in self.parameters.items():
                    p.copy_(p - self.weight * p + self.second * self._fresh(number, name))
            case "redo":
                for i, h in enumerate(units):  # all of these steps lie in the window
                    self.sums[i] = self.sums.get(i, 0) + by_hand.mean_activity(h)
                if number % self.second == 0:
                    for i, total in self.sums.items():
                        fresh = self._fresh(number, f"blocks.{i}.op.weight")
                        for unit in range(len(total)):
                            if total[unit] <= self.weight * total.mean():
                                by_hand.renew(self.parameters, self.optimiser, i, unit, fresh[unit])
                    self.sums = {}
            case "continual-backprop":
                for i, h in enumerate(units):
                    self._replace(number, i, by_hand.mean_activity(h))

    def _replace(self, number, i, active):
        width, weights = len(active), [n for n in self.parameters if n.endswith("op.weight")] + ["head.weight"]
        outgoing = self.parameters[weights[i + 1]]
        ages, utilities = self.ages.setdefault(i, [0] * width), self.utilities.setdefault(i, [0.0] * width)
        positions = outgoing.shape[1] // width
        for unit in range(width):
            ages[unit] += 1
            columns = slice(unit * positions, (unit + 1) * positions) if outgoing.dim() == 2 else unit
            utilities[unit] = (
                0.99 * utilities[unit] + 0.01 * active[unit].item() * outgoing[:, columns].abs().sum().item()
            )
        mature = [unit for unit in range(width) if ages[unit] > self.second]
        self.count[i] = self.count.get(i, 0.0) + self.weight * len(mature)
        if self.count[i] > 1 and mature:
            unit = min(mature, key=lambda candidate: utilities[candidate])
            shape = (1, *self.parameters[weights[i]].shape[1:])
            by_hand.renew(self.parameters, self.optimiser, i, unit, self._fresh(number, weights[i], shape)[0])
            ages[unit], utilities[unit] = 0, 0.0
            self.count[i] -= 1


def check(method, design, settings, optimiser="adam", steps=STEPS):
    """Train a stack, and each of its nets alone by plain torch, and compare all parameters."""
    stacked = nets(method, design, settings, optimiser=optimiser)
    alone = [PlainSteps(stacked, i, optimiser) for i in range(len(SEEDS))]
    for number, (x, y, earlier) in enumerate(batches(design, steps), 1):
        stacked.step(x, y, earlier)
        for i, plain in enumerate(alone):
            plain.step(number, x[i], y[i], earlier[i])
    for i, plain in enumerate(alone):
        assert any(not torch.equal(plain.start[name], p) for name, p in plain.parameters.items())
        torch.testing.assert_close(net(stacked, i), plain.parameters, rtol=1e-8, atol=1e-9)


def settings_of(method):
    """Three different settings of a method, strong enough to change parameters in a few steps."""
    return {
        "shrink-and-perturb": [MethodSetting(1e-2, 0.1, 0.2), MethodSetting(1e-3, 0.3, 0.1), MethodSetting(1e-2, 0, 0)],
        "redo": [MethodSetting(1e-2, 0.5, 2), MethodSetting(1e-3, 0.9, 3), MethodSetting(1e-2, 0.0, 2)],
        "continual-backprop": [MethodSetting(1e-2, 0.3, 1), MethodSetting(1e-3, 0.5, 0), MethodSetting(1e-2, 0.2, 2)],
    }.get(method.change, [MethodSetting(1e-2, 0.3), MethodSetting(1e-3, 3.0), MethodSetting(3e-2, 0.1)])


@pytest.mark.parametrize("name", METHODS)
def test_each_method_steps_as_by_hand(name, monkeypatch):
    monkeypatch.setattr(stack, "MEASURED", 2)
    method = METHODS[name]
    design = DENSE if method.reverse else CONVOLUTIONAL
    check(method, design, settings_of(method))


@pytest.mark.parametrize("name", ["Std", "L2", "linear decoupled"])
def test_sgd_steps_as_by_hand(name):
    check(METHODS[name], DENSE, settings_of(METHODS[name]), "sgd")


@pytest.mark.parametrize("change, norm", [("redo", "layer"), ("continual-backprop", "batch")])
def test_units_start_anew_in_nets_with_norms_and_between_dense_layers(change, norm):
    """A reinitialised unit's scale in the norm becomes 1, its bias and the moments of its scale 0."""
    for design in (DENSE, CONVOLUTIONAL):
        check(Method("m", change=change), design, settings_of(Method("m", change=change)), steps=6)
    stacked = nets(Method("m", norm=norm, change=change), DENSE, settings_of(Method("m", change=change)))
    for x, y, _ in batches(DENSE, 6):
        stacked.step(x, y)
    gain, bias = (stacked.state["parameters"][f"blocks.0.{kind}"] for kind in ("norm.weight", "op.bias"))
    moment = stacked.state["moments"]["square"]["blocks.0.norm.weight"]
    assert ((bias == 0) == (gain == 1)).all()
    assert ((bias == 0) == (moment == 0)).all()
    assert (bias == 0).any()


def test_spectral_regularisation_takes_norms_gains_along():
    check(Method("m", norm="layer", penalty="spectral"), DENSE, settings_of(METHODS["Std"]))


@pytest.mark.parametrize("design", [DENSE, CONVOLUTIONAL])
def test_linear_has_the_gradient_of_the_closed_form(design):
    """(2/‖h‖²)(A h eᵀ + A e hᵀ) with e = AᵀA h − h, divided by the number of layers, and 0 for all other parameters."""
    stacked = nets(replace(METHODS["linear"], coupling="decoupled"), design, [MethodSetting(0.0, 1.0)] * 3)
    x, y, _ = next(batches(design))
    _, inputs, _ = by_hand.forward(net(stacked, 0), x[0], stacked.method)
    weights = [n for n in stacked.state["parameters"] if n.endswith("op.weight")]
    gradients = torch.func.grad(lambda p: stacked.penalty.value(stacked.net, p, {}, inputs))(net(stacked, 0))
    w, h = net(stacked, 0)[weights[-1]], inputs[-2].flatten(1).T
    e = w.T @ w @ h - h
    expected = 2 / (h**2).sum() * (w @ h @ e.T + w @ e @ h.T) / len(weights)
    torch.testing.assert_close(gradients[weights[-1]], expected, rtol=1e-12, atol=1e-12)
    assert not any(g.any() for name, g in gradients.items() if name not in weights)


@pytest.mark.parametrize(
    "name", ["BatchNorm", "Shrink & Perturb", "Continual backprop", "Spectral", "linear on random h"]
)
def test_a_net_does_not_depend_on_those_beside_it(name):
    method = METHODS[name]
    settings = settings_of(method)
    together = nets(method, CONVOLUTIONAL, settings)
    alone = nets(method, CONVOLUTIONAL, settings[1:2], SEEDS[1:2])
    for x, y, _ in batches(CONVOLUTIONAL):
        first, second = together.step(x, y), alone.step(x[1:2], y[1:2])
        torch.testing.assert_close(first[1:2], second, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(net(together, 1), net(alone, 0), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(together.outputs(x)[1], alone.outputs(x[1:2])[0], rtol=1e-9, atol=1e-12)


def test_directions_of_spectral_regularisation_have_length_1_and_are_drawn():
    stacked = nets(METHODS["Spectral"], DENSE, settings_of(METHODS["Spectral"]))
    for i, layer in enumerate(stacked.net.layers):
        u = stacked.state["penalty"][f"{layer}.u"]
        torch.testing.assert_close(u.norm(dim=1), torch.ones(3, dtype=u.dtype))
        expected = [draws.normal(key, DIRECTIONS + i, u.shape[1:], u.dtype) for key in stacked.state["key"]]
        torch.testing.assert_close(u, F.normalize(torch.stack(expected), dim=1))
