"""Functions that measure what a network learned, trained with racecar or not.

Each takes any model that Racecar can plan, or a Racecar, runs it in evaluation mode and leaves it unchanged. The one
exception is :func:`calibrate`, which stores statistics in a Racecar.
Figures are in :mod:`racecar.inspect.figures`, which needs matplotlib.
"""

from racecar.inspect.activations import Activation, activations
from racecar.inspect.calibration import calibrate
from racecar.inspect.information_plane import (
    InformationPlane,
    SaturationWarning,
    bin_sweep,
    information_plane,
    plane,
)
from racecar.inspect.invertibility import Invertibility, invertibility
from racecar.inspect.leakage import Leakage, leakage
from racecar.inspect.lpips import Lpips
from racecar.inspect.plasticity import Plasticity, plasticity
from racecar.inspect.plasticity_log import PlasticityLog
from racecar.inspect.sample_errors import sample_errors
from racecar.inspect.similarity import Similarity, principal_angles, similarity
from racecar.inspect.singular_vectors import SingularVectors, singular_vectors
from racecar.inspect.ssim import psnr, ssim

__all__ = [
    "Activation",
    "InformationPlane",
    "Invertibility",
    "Leakage",
    "Lpips",
    "Plasticity",
    "PlasticityLog",
    "SaturationWarning",
    "Similarity",
    "SingularVectors",
    "activations",
    "bin_sweep",
    "calibrate",
    "information_plane",
    "invertibility",
    "leakage",
    "plane",
    "plasticity",
    "principal_angles",
    "psnr",
    "sample_errors",
    "similarity",
    "singular_vectors",
    "ssim",
]
