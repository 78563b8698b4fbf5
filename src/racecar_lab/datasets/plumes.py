"""Buoyant plumes of smoke, simulated by PhiFlow: other inflow, velocity and buoyancy for each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from racecar.support.extras import need
from racecar.support.files import write_atomically
from racecar.support.progress import bar

SEED = 1
"""Plumes of seed 0 were looked at while the experiments were planned; nobody has seen these."""
RANGES = {
    "x": (0.25, 0.75),
    "y": (0.08, 0.2),
    "radius": (0.05, 0.11),
    "speed": (0.5, 1.5),
    "angle": (-math.pi / 5, math.pi / 5),
    "buoyancy": (0.03, 0.15),
}
"""Of a plume, drawn evenly: place and radius of the inflow, as shares of the picture; its velocity, in pixels of 64 per
frame, and its angle to the vertical; what smoke of density 1 gains in upward velocity in a frame, in the same pixels.
"""
FINE = 64
"""Pixels that velocities are given in."""
TOLERANCE = 1e-3
"""Of the pressure."""


@dataclass(frozen=True)
class Plumes:
    """What was made."""

    density: Any
    """uint8 (plumes, frames, H, W), 255 for a density of 1; the first row is the top."""
    drawn: dict[str, Any]
    """What of ``RANGES`` each plume has, (plumes,)."""


def draw(plumes: int, seed: int = SEED) -> dict[str, Any]:
    """For every plume, its inflow, velocity and buoyancy: float32 (plumes,)."""
    numpy = need("numpy", "lab")
    generator = numpy.random.default_rng(seed)
    return {name: generator.uniform(*ends, plumes).astype("float32") for name, ends in RANGES.items()}


def simulate(plumes: int, frames: int, size: int, seed: int = SEED, show: bool | None = None) -> Plumes:
    """All plumes at once, in a box with an open top.

    A frame is one step: density moves by MacCormack's scheme, velocity by a semi-Lagrangian one, then the velocity is
    made divergence-free. In the inflow the density is 1 and the velocity the plume's own.

    Args:
        show: the progress bar, as in ``bar``.
    """
    numpy, flow = need("numpy", "smoke"), need("phi.flow", "smoke")
    drawn = draw(plumes, seed)

    def each(values: Any) -> Any:
        return flow.tensor(values, flow.batch("plume"))

    grid = {"x": size, "y": size, "bounds": flow.Box(x=size, y=size)}
    smoke = flow.CenteredGrid(0, flow.ZERO_GRADIENT, **grid)
    velocity = flow.StaggeredGrid(0, {"x": 0, "y-": 0, "y+": flow.ZERO_GRADIENT}, **grid)
    place = flow.vec(x=each(drawn["x"] * size), y=each(drawn["y"] * size))
    inflow = flow.Sphere(place, radius=each(drawn["radius"] * size))
    there, moved = (flow.resample(inflow, to=one, soft=True) for one in (smoke, velocity))
    pixels = size / FINE
    speed, angle = drawn["speed"] * pixels, drawn["angle"]
    blown = flow.vec(x=each(speed * numpy.sin(angle)), y=each(speed * numpy.cos(angle)))
    lift = flow.vec(x=each(0 * speed), y=each(drawn["buoyancy"] * pixels))
    solve, found = flow.Solve("scipy-direct", TOLERANCE, TOLERANCE), []
    with bar("smoke", frames, show) as advance:
        for _ in range(frames):
            smoke = flow.advect.mac_cormack(smoke, velocity, 1.0)
            smoke = smoke.with_values(flow.math.clip(flow.math.maximum(smoke.values, there.values), 0, 1))
            velocity = flow.advect.semi_lagrangian(velocity, velocity, 1.0) + (smoke * lift).at(velocity)
            velocity = velocity * (1 - moved) + moved * blown
            velocity, _ = flow.fluid.make_incompressible(velocity, (), solve)
            seen = smoke.values.numpy("plume,y,x")[:, ::-1]
            found.append(numpy.rint(255 * seen).astype("uint8"))
            advance(1, "frames")
    return Plumes(numpy.stack(found, 1), drawn)


def write(path: Path, plumes: int, frames: int, size: int, seed: int = SEED, show: bool | None = None) -> None:
    """Simulate, and keep it with what was drawn, the seed and PhiFlow's version in one compressed npz file."""
    numpy, phi = need("numpy", "smoke"), need("phi", "smoke")
    made = simulate(plumes, frames, size, seed, show)
    with write_atomically(path) as file:
        numpy.savez_compressed(file, density=made.density, seed=seed, phiflow=phi.__version__, **made.drawn)
