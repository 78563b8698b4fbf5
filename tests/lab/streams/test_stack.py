"""Stacks of nets: random numbers, initialisation, new tasks, checkpoints, metrics, and steps that never wait."""

from functools import partial
from itertools import pairwise

import pytest
import torch
from torch.func import grad, vmap
from torch.nn import functional as F
from torch.utils._pytree import tree_map

from racecar_lab.streams import DESIGNS, METHODS, Design, Method, MethodSetting, StreamStack, draws
from racecar_lab.streams.convolution import Products
from racecar_lab.streams.metrics import dead_units, effective_rank
from racecar_lab.streams.nets import StreamNet, stream_net
from racecar_lab.streams.resets import WINDOW, count_activity

SMALL = Design(((3, 3, 1),), (4,))
SETTINGS = [MethodSetting(1e-2, 0.3, 2), MethodSetting(1e-3, 0.1, 3)]


def small(method, design=SMALL, quick=False):
    return StreamStack(method, design, (1, 4, 4), 3, (1, 2), SETTINGS, quick=quick)


def batch(seed=0):
    torch.manual_seed(seed)
    return torch.randn(2, 4, 1, 4, 4), torch.randint(3, (2, 4))


def test_random_bits_are_those_of_splitmix64():
    """Its published first numbers from seed 0, which is the stream of key 0 and number 0."""
    expected = (0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F)
    assert [number % 2**64 for number in draws.bits(torch.tensor(0), 0, 3).tolist()] == list(expected)


def test_random_numbers_are_uniform_and_normal_and_differ_by_key_and_number():
    key, shape = torch.tensor(3), (100, 200)
    flat, round_ = (draw(key, 1, shape, torch.float64) for draw in (draws.uniform, draws.normal))
    for numbers, moments in ((flat, (0, 1 / 3, 0, 1 / 5)), (round_, (0, 1, 0, 3))):
        computed = [numbers.pow(power).mean().item() for power in (1, 2, 3, 4)]
        assert computed == pytest.approx(moments, abs=0.15 if moments[3] == 3 else 0.02)
    assert flat.abs().max() < 1
    others = [draws.uniform(torch.tensor(k), n, shape, torch.float64) for k, n in ((3, 2), (4, 1), (4, 2))]
    for other in others:
        assert torch.corrcoef(torch.stack([flat.flatten(), other.flatten()]))[0, 1].abs() < 0.03


@pytest.mark.parametrize("norm", ["none", "layer", "batch"])
def test_first_parameters_are_pytorchs_own(norm):
    """Uniform up to the same bound; norms begin at 1 and 0."""
    net = stream_net(DESIGNS["kumar"], (3, 32, 32), 10, norm=norm)
    for name, p in net.named_parameters():
        fresh = net.fresh(torch.tensor(1), 7, name)
        if net.is_norm(name):
            assert torch.equal(fresh, p)
        elif p.dim() > 1:
            assert fresh.abs().max() <= p[0].numel() ** -0.5
            assert fresh.std().item() == pytest.approx(p.std().item(), rel=0.1)


def test_designs_are_those_of_the_issue_and_crelu_has_no_more_parameters():
    def size(net):
        return sum(p.numel() for p in net.parameters())

    shapes = {"mlp3": (784,), "mlp6": (784,), "kumar": (3, 32, 32), "conv3": (3, 32, 32)}
    for name, shape in shapes.items():
        plain, both = (stream_net(DESIGNS[name], shape, 10, kind) for kind in ("relu", "crelu"))
        assert plain(torch.zeros(2, *shape)).shape == both(torch.zeros(2, *shape)).shape == (2, 10)
        assert 0.93 * size(plain) < size(both) <= size(plain)
    kumar = [
        tuple(p.shape) for name, p in StreamNet(DESIGNS["kumar"], (3, 32, 32), 10).named_parameters() if "we" in name
    ]
    assert kumar == [(16, 3, 5, 5), (16, 16, 5, 5), (100, 400), (100, 100), (10, 100)]
    assert size(stream_net(DESIGNS["mlp3"], (784,), 10)) == 784 * 100 + 2 * 100 * 100 + 100 * 10 + 310


@pytest.mark.parametrize("name", METHODS)
def test_a_step_never_waits_for_the_device(name):
    """On tensors without values: to read one is an error there, and so is a tensor on another device."""
    method, (x, y) = METHODS[name], batch()
    nets = small(method)
    state, settings, x, y = tree_map(lambda tensor: tensor.to("meta"), (nets.state, nets.settings, x, y))
    after, measured = vmap(lambda *arguments: nets._step(True, *arguments))(state, settings, x, y, x)
    assert measured.shape == (2, 2)
    assert {name: p.shape for name, p in after["parameters"].items()} == {
        name: p.shape for name, p in nets.state["parameters"].items()
    }


@pytest.mark.parametrize("name", ["Shrink & Perturb", "ReDo", "linear + CReLU"])
def test_recorded_steps_are_the_same_and_go_on_from_a_checkpoint(name):
    quick, plain = (small(METHODS[name], Design(hidden=(4,)), quick=quick) for quick in (True, False))
    for seed in range(4):
        assert torch.equal(quick.step(*batch(seed)), plain.step(*batch(seed)))
    saved = tree_map(lambda value: value.clone() if isinstance(value, torch.Tensor) else value, plain.state_dict())
    again = small(METHODS[name], Design(hidden=(4,)))
    again.load_state_dict(saved)
    for seed in (4, 5):
        measured = [nets.step(*batch(seed)) for nets in (plain, quick, again)]
        assert torch.equal(measured[0], measured[1])
        assert torch.equal(measured[0], measured[2])


def test_a_step_reports_loss_and_accuracy_before_it():
    nets, (x, y) = small(METHODS["linear"]), batch()
    logits = nets.outputs(x)
    expected = [torch.nn.functional.cross_entropy(logits[i], y[i]) for i in range(2)]
    measured = nets.step(x, y)
    torch.testing.assert_close(measured[:, 0], torch.stack(expected))
    torch.testing.assert_close(measured[:, 1], (logits.argmax(2) == y).float().mean(1))


def test_reset_makes_new_nets_for_every_task_and_others_go_on():
    for name in ("Reset", "Std"):
        nets = small(METHODS[name])
        first = nets.state["parameters"]["head.weight"].clone()
        nets.new_task()
        assert torch.equal(nets.state["parameters"]["head.weight"], first)
        nets.step(*batch())
        trained = nets.state["parameters"]["head.weight"].clone()
        nets.new_task()
        now, moment = nets.state["parameters"]["head.weight"], nets.state["moments"]["mean"]["head.weight"]
        assert torch.equal(now, trained) == (name == "Std")
        assert moment.any() == (name == "Std")
        assert not torch.isclose(now, first).any() or name == "Std"


def test_a_head_of_zeros_has_no_moments_and_the_rest_stays():
    nets = small(METHODS["Std"])
    nets.step(*batch())
    before = nets.state["parameters"]["blocks.0.op.weight"].clone()
    nets.new_task(zero_head=True)
    for each in (nets.state["parameters"], *nets.state["moments"].values()):
        assert not each["head.weight"].any()
        assert not each["head.bias"].any()
        assert each["blocks.0.op.weight"].any()
    assert torch.equal(nets.state["parameters"]["blocks.0.op.weight"], before)


def test_redo_counts_only_the_last_steps_before_a_check():
    sums, period = {"0": torch.zeros(2)}, torch.tensor(100.0)
    units = [torch.tensor([[1.0, 0.0], [-3.0, 4.0]])]
    for step in range(1, 101):
        sums = count_activity(sums, units, torch.tensor(step), period)
        assert sums["0"].tolist() == [2.0 * max(0, step - 100 + WINDOW)] * 2
    assert not count_activity(sums, units, torch.tensor(101), period)["0"].any()


def test_metrics():
    nets = small(METHODS["Std"])
    x, _ = batch()
    with torch.no_grad():
        nets.state["parameters"]["blocks.1.op.bias"][0, :3] = -100.0
    measures = nets.metrics(x)
    parameters = nets.state["parameters"]
    squares = sum(parameters[f"{name}.weight"].square().flatten(1).sum(1) for name in nets.net.layers)
    torch.testing.assert_close(measures["weight_norm"], squares.sqrt())
    assert measures["dead_units"][0].item() >= 3 / 7
    assert measures["effective_rank"][0] <= 1.0001
    assert {values.shape for values in measures.values()} == {(2,)}


def test_dead_units_and_effective_rank_by_hand():
    convolutional = torch.zeros(2, 3, 2, 2)
    convolutional[1, 1, 0, 1] = 1.0
    assert dead_units([convolutional, torch.tensor([[0.0, 0.0], [0.0, 2.0]])]).item() == pytest.approx(3 / 5)
    assert effective_rank(torch.eye(5)).item() == pytest.approx(5)
    assert effective_rank(torch.ones(4, 3)).item() == pytest.approx(1, abs=1e-3)
    share = torch.tensor([0.75, 0.25])
    assert effective_rank(torch.diag(torch.tensor([3.0, 1.0]))).item() == pytest.approx((share**-share).prod().item())
    assert effective_rank(torch.zeros(4, 3)).item() == 0
    assert effective_rank(torch.full((4, 3), torch.inf)).isnan()


@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
def test_every_method_has_as_many_settings_and_half_decades(optimiser):
    assert len(METHODS) == 28
    for method in METHODS.values():
        settings = method.settings(optimiser)
        assert len(set(settings)) == 20
        assert all(setting.lr > 0 for setting in settings)
        weights = sorted({setting.weight for setting in settings} - {0.0})
        for low, high in pairwise(weights):
            assert 2.9 < high / low < 10.1


def test_methods_that_cannot_work_are_refused():
    with pytest.raises(ValueError, match="relu"):
        Method("m", activation="crelu", change="redo")
    with pytest.raises(ValueError, match="without penalty"):
        Method("m", reverse="full", penalty="l2")
    with pytest.raises(ValueError, match="2 settings"):
        StreamStack(METHODS["Std"], SMALL, (1, 4, 4), 3, (1,), SETTINGS)
    nets, (x, y) = small(METHODS["Std"]), batch()
    nets.step(x, y)
    with pytest.raises(ValueError, match="another size"):
        nets.step(x[:, :3], y[:, :3])


@pytest.mark.parametrize("kernel, padding", [(5, 0), (3, 1)])
def test_products_are_the_convolution_of_every_net(kernel, padding):
    x, w = torch.randn(3, 2, 4, 8, 8, dtype=torch.float64), torch.randn(3, 6, 4, kernel, kernel, dtype=torch.float64)

    def value(w, x, convolve):
        z = convolve(x, w, padding)
        return (z * z.cos()).sum(), z

    def conv2d(x, w, padding):
        return F.conv2d(x, w, padding=padding)

    products, convolutions = (
        vmap(partial(grad(value, argnums=(0, 1), has_aux=True), convolve=f))(w, x) for f in (Products.apply, conv2d)
    )
    torch.testing.assert_close(products, convolutions)
