"""What every test needs: one thread, and inductor imported before warnings become errors."""

import warnings

import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # inductor's import warns about things of its own
    import torch._inductor.compile_fx

torch.set_num_threads(1)
