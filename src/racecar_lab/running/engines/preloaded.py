"""What the process that workers are forked from imports, for all of them."""

from __future__ import annotations

import gc
from importlib import import_module

MODULES = ("racecar_lab.running.engines.vmap", "racecar_lab.experiments", "torch._dynamo")
"""The first optimiser of a process would import the last one."""

# All of it stays: to look through it for garbage meanwhile takes an eighth of the time, and once it is frozen no worker
# does so either, which would copy the memory that it shares.
gc.disable()
for _name in MODULES:
    import_module(_name)
gc.freeze()
gc.enable()
