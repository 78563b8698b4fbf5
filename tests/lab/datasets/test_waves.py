"""Waves and advection: solutions known in closed form, another solver, energy, and what viscosity forgets."""

import math
from itertools import pairwise

import pytest
import torch

from racecar_lab.datasets.waves import ANGLE, SYSTEMS, UNIT, Advection, Waves

SIZE = 16


def grid():
    """Rows and columns of all cells, each (SIZE, SIZE) in float64."""
    cells = torch.arange(SIZE, dtype=torch.float64)
    return torch.meshgrid(cells, cells, indexing="ij")


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def states(system, count=3):
    """Smooth states with every field in use."""
    return system.solve(system.initial(count, SIZE, generator()).double(), 3.7)


def plane_wave(time, speed, viscosity, modes=(2, -3)):
    """u = cos(k·x − ω t) exp(−ν k² t), v = UNIT / c · the derivative of the cosine."""
    rows, columns = grid()
    k = [2 * math.pi * mode / SIZE for mode in modes]
    size = math.hypot(*k)
    phase = k[0] * rows + k[1] * columns - speed * size * time
    damping = math.exp(-viscosity * size**2 * time)
    return torch.stack((phase.cos(), UNIT * size * phase.sin())).unsqueeze(0) * damping


@pytest.mark.parametrize("viscosity", [0.0, 0.3])
@pytest.mark.parametrize("time", [1.0, 0.4, 50.0])
def test_a_plane_wave_travels(time, viscosity):
    waves = Waves(speed=1.5, viscosity=viscosity)
    solved = waves.solve(plane_wave(0.0, 1.5, viscosity), time)
    torch.testing.assert_close(solved, plane_wave(time, 1.5, viscosity), rtol=0, atol=1e-10)


def test_a_standing_wave():
    rows, columns = grid()
    k = 2 * math.pi / SIZE
    shape = (k * rows).sin() * (k * columns).cos()
    start = torch.stack((shape, torch.zeros_like(shape))).unsqueeze(0)
    omega = 2.0 * math.sqrt(2) * k
    solved = Waves().solve(start, 5.0)[0]
    torch.testing.assert_close(solved[0], shape * math.cos(5 * omega), rtol=0, atol=1e-12)
    torch.testing.assert_close(solved[1], -UNIT / 2 * omega * math.sin(5 * omega) * shape, rtol=0, atol=1e-12)


def test_a_field_that_is_carried_by_whole_cells():
    """Carried down by 4 sin(ANGLE) = 2 rows, and by columns as far as a shift of the drops' own formula says."""
    start = Advection().initial(2, SIZE, generator()).double()
    solved = Advection(speed=2 / math.sin(ANGLE)).solve(start, 1.0)
    across = Advection(speed=1.0).solve(start, 0.0).roll(2, 2)
    columns = 2 / math.tan(ANGLE)
    shifts = torch.exp(-1j * torch.fft.fftfreq(SIZE, dtype=torch.float64) * 2 * math.pi * columns)
    expected = torch.fft.ifft(torch.fft.fft(across, dim=3) * shifts, dim=3).real
    torch.testing.assert_close(solved, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("viscosity", [0.0, 0.2])
@pytest.mark.parametrize("name", SYSTEMS)
def test_small_steps_of_another_solver_lead_to_the_same(name, viscosity):
    """Runge and Kutta's method on the equations as they stand, with finite differences of eighth order in space."""
    system = SYSTEMS[name](speed=1.0, viscosity=viscosity)
    first, second = (4 / 5, -1 / 5, 4 / 105, -1 / 280), (8 / 5, -1 / 5, 8 / 315, -1 / 560)

    def slope(x, dim):
        return sum(c * (x.roll(-i, dim) - x.roll(i, dim)) for i, c in enumerate(first, 1))

    def laplacian(x):
        return sum(
            -205 / 72 * x + sum(c * (x.roll(-i, dim) + x.roll(i, dim)) for i, c in enumerate(second, 1))
            for dim in (-1, -2)
        )

    def change(state):
        damping = viscosity * laplacian(state)
        if name == "advection":
            return damping - math.sin(ANGLE) * slope(state, -2) - math.cos(ANGLE) * slope(state, -1)
        u, v = state.unbind(1)
        return damping + torch.stack((v / UNIT, UNIT * laplacian(u)), 1)

    rows, columns = grid()
    k = 2 * math.pi / SIZE
    waves = [(k * rows).cos() + (k * columns + 1).sin(), (k * (rows + columns)).sin()][: system.fields]
    start = state = torch.stack(waves).unsqueeze(0)
    step, count = 0.02, 100
    for _ in range(count):
        a = change(state)
        b = change(state + step / 2 * a)
        c = change(state + step / 2 * b)
        d = change(state + step * c)
        state = state + step / 6 * (a + 2 * b + 2 * c + d)
    torch.testing.assert_close(system.solve(start, step * count), state, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", SYSTEMS)
def test_energy_is_conserved_without_viscosity(name):
    system = SYSTEMS[name]()
    start = states(system)
    for time in (1.0, 7.3, 50.0):
        torch.testing.assert_close(system.energy(system.solve(start, time)), system.energy(start), rtol=1e-9, atol=0)


@pytest.mark.parametrize("name", SYSTEMS)
def test_energy_falls_with_viscosity(name):
    system = SYSTEMS[name](viscosity=0.1)
    energies = [system.energy(system.solve(states(system), float(time))) for time in range(6)]
    assert all((later < earlier).all() for earlier, later in pairwise(energies))


def test_energy_of_waves_by_differences_in_space():
    """½ Σ (∂u/∂t / c)² + |∇u|², of a wave that finite differences resolve well."""
    rows, _ = grid()
    k = 2 * math.pi / SIZE
    state = torch.stack(((k * rows).cos(), (k * rows).sin())).unsqueeze(0)
    expected = ((state[0, 1] / UNIT) ** 2 + (k * (k * rows).sin()) ** 2).sum() / 2
    assert float(Waves().energy(state)) == pytest.approx(float(expected))


@pytest.mark.parametrize("viscosity", [0.0, 0.05])
@pytest.mark.parametrize("name", SYSTEMS)
def test_steps_add_up_and_lead_back(name, viscosity):
    system = SYSTEMS[name](viscosity=viscosity)
    start = states(system)
    there = system.solve(start, torch.tensor([1, 5, 9]))
    torch.testing.assert_close(system.solve(there, torch.tensor([4, 0, -4])), system.solve(start, 5.0))
    torch.testing.assert_close(system.solve(system.solve(start, 5.0), -5.0), start, rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", SYSTEMS)
def test_initial_states(name):
    """Drops of one size in the first field, at rest; they follow from the generator, and no two are the same."""
    system = SYSTEMS[name]()
    first, again, other = (system.initial(4, 32, generator(seed)) for seed in (0, 0, 1))
    assert first.equal(again)
    assert not first.equal(other)
    assert first.shape == (4, system.fields, 32, 32)
    assert first.dtype == torch.float32
    torch.testing.assert_close(first[:, 0].square().mean((1, 2)), torch.ones(4))
    assert not first[:, 1:].any()
    assert not any(first[0].equal(one) for one in first[1:])
