"""Buoyant plumes of smoke, simulated by PhiFlow, with random inflow, velocity and buoyancy."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from racecar.support.extras import need
from racecar.support.files import write_atomically
from racecar.support.progress import bar

SEED = 1
"""Seed of the plumes' random parameters. It is not 0, because the plumes of seed 0 were looked at while the experiments
were planned."""
RANGES = {
    "x": (0.25, 0.75),
    "y": (0.08, 0.2),
    "radius": (0.05, 0.11),
    "speed": (0.5, 1.5),
    "angle": (-math.pi / 5, math.pi / 5),
    "buoyancy": (0.03, 0.15),
}
"""Parameter of a plume → ends of the uniform distribution from which it is drawn: position and radius of the inflow, as
shares of the picture; its speed, in pixels (of a picture of 64 × 64) per frame, and its angle to the vertical; the
upward velocity that smoke of density 1 gains in a frame, in the same pixels per frame."""
FINE = 64
"""Height and width of the picture in whose pixels velocities are measured; for other sizes they are scaled."""
TOLERANCE = 1e-3
"""Relative and absolute tolerance of the solver for the pressure."""


def draw(plumes: int, seed: int = SEED) -> dict[str, Any]:
    """Random parameters of plumes: name in ``RANGES`` → values, float32 (plumes,)."""
    numpy = need("numpy", "lab")
    generator = numpy.random.default_rng(seed)
    return {name: generator.uniform(*ends, plumes).astype("float32") for name, ends in RANGES.items()}


def simulate(parameters: dict[str, Any], frames: int, size: int, show: bool | None = None) -> Any:
    """Simulate all plumes at once, in a box with an open top.

    A frame is one step: density is advected by MacCormack's scheme, velocity by a semi-Lagrangian one, then velocity is
    made divergence-free. In the inflow the density is 1, and the velocity is that of the plume's parameters.

    Args:
        parameters: as from ``draw``.
        frames: number of frames.
        size: height and width of the picture.
        show: whether to show a progress bar, as in ``bar``.

    Returns:
        Densities, uint8 (plumes, frames, H, W), 255 for a density of 1; the first row is the top.
    """
    numpy, flow = need("numpy", "smoke"), need("phi.flow", "smoke")

    def tensor(values: Any) -> Any:
        """A PhiFlow tensor of one value for each plume."""
        return flow.tensor(values, flow.batch("plume"))

    grid = {"x": size, "y": size, "bounds": flow.Box(x=size, y=size)}
    smoke = flow.CenteredGrid(0, flow.ZERO_GRADIENT, **grid)
    velocity = flow.StaggeredGrid(0, {"x": 0, "y-": 0, "y+": flow.ZERO_GRADIENT}, **grid)
    centre = flow.vec(x=tensor(parameters["x"] * size), y=tensor(parameters["y"] * size))
    inflow = flow.Sphere(centre, radius=tensor(parameters["radius"] * size))
    density_mask, velocity_mask = (flow.resample(inflow, to=field, soft=True) for field in (smoke, velocity))
    pixels = size / FINE
    speed, angle = parameters["speed"] * pixels, parameters["angle"]
    inflow_velocity = flow.vec(x=tensor(speed * numpy.sin(angle)), y=tensor(speed * numpy.cos(angle)))
    lift = flow.vec(x=tensor(0 * speed), y=tensor(parameters["buoyancy"] * pixels))
    solve, densities = flow.Solve("scipy-direct", TOLERANCE, TOLERANCE), []
    with bar("smoke", frames, show) as advance:
        for _ in range(frames):
            smoke = flow.advect.mac_cormack(smoke, velocity, 1.0)
            smoke = smoke.with_values(flow.math.clip(flow.math.maximum(smoke.values, density_mask.values), 0, 1))
            velocity = flow.advect.semi_lagrangian(velocity, velocity, 1.0) + (smoke * lift).at(velocity)
            velocity = velocity * (1 - velocity_mask) + velocity_mask * inflow_velocity
            velocity, _ = flow.fluid.make_incompressible(velocity, (), solve)
            density = smoke.values.numpy("plume,y,x")[:, ::-1]
            densities.append(numpy.rint(255 * density).astype("uint8"))
            advance(1, "frames")
    return numpy.stack(densities, 1)


def write(path: Path, plumes: int, frames: int, size: int, seed: int = SEED, show: bool | None = None) -> None:
    """Simulate plumes, and write them with parameters, seed and PhiFlow's version into a compressed npz file."""
    numpy, phi = need("numpy", "smoke"), need("phi", "smoke")
    parameters = draw(plumes, seed)
    density = simulate(parameters, frames, size, show)
    with write_atomically(path) as file:
        numpy.savez_compressed(file, density=density, seed=seed, phiflow=phi.__version__, **parameters)
