"""What every test needs: one thread, inductor imported before warnings become errors, and how hypothesis draws."""

import os
import warnings

import torch
from hypothesis import settings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # inductor's import warns about things of its own
    import torch._inductor.compile_fx

torch.set_num_threads(1)

# Few examples and the same ones in every run; `make soak` draws many, and others every time.
settings.register_profile("few", max_examples=12, deadline=None, derandomize=True)
settings.register_profile("soak", max_examples=500, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "few"))
