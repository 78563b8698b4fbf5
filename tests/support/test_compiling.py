"""One seam between eager and compiled code; and nothing global changes when racecar is imported."""

import ast
import logging
import subprocess
import sys
from pathlib import Path

import torch
from torch import nn

import racecar
from racecar import Racecar

PACKAGE = Path(racecar.__file__).parent

IMPORT = """
import atexit, json, logging, os, pkgutil, signal, sys, threading, warnings
import torch, torch.nn.modules.module as modules

def state():
    fresh = logging.Logger("fresh")
    loggers = {name: one for name, one in logging.root.manager.loggerDict.items() if isinstance(one, logging.Logger)}
    def of(one):
        return [one.level, one.disabled, one.propagate, list(map(str, one.filters)), list(map(str, one.handlers))]
    return {
        "loggers": {name: of(one) for name, one in [("root", logging.root), *loggers.items()] if of(one) != of(fresh)},
        "warnings": list(map(str, warnings.filters)),
        "environment": dict(os.environ),
        "signals": [str(signal.getsignal(one)) for one in signal.valid_signals()],
        "hooks": [str(sys.excepthook), str(sys.displayhook), str(threading.excepthook), sys.getswitchinterval()],
        "path": sys.path,
        "exit": atexit._ncallbacks(),
        "modules": [len(one) for name, one in sorted(vars(modules).items()) if name.startswith("_global_")
                    and hasattr(one, "__len__")],
        "torch": [str(torch.get_default_dtype()), torch.get_rng_state().sum().item(), torch.is_grad_enabled(),
                  torch.get_num_threads(), torch.are_deterministic_algorithms_enabled(),
                  torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark],
    }

before = state()
import racecar
for room in ("support", "rules", "watch", "plan", "run", "racecar", "functional", "every", "orthogonality"):
    found = __import__(f"racecar.{room}", fromlist=["_"])
    for one in pkgutil.iter_modules(getattr(found, "__path__", [])):
        __import__(f"racecar.{room}.{one.name}")
after = state()
print(json.dumps([(name, before[name], after[name]) for name in before if before[name] != after[name]]))
"""


def test_import_changes_nothing_global():
    """In a fresh process: no logger, no warning filter, no hook, no random state, no setting of torch."""
    found = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_one_module_asks_whether_it_is_compiled():
    """A new torch then touches one file."""
    names = {"is_compiling", "is_dynamo_compiling", "is_functorch_wrapped_tensor", "is_current_stream_capturing"}
    asking = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            named = {one.name for one in node.names} if isinstance(node, ast.ImportFrom) else set()
            if named & names or (isinstance(node, ast.Attribute) and node.attr in names):
                asking.add(path.relative_to(PACKAGE).as_posix())
    assert asking == {"support/compiling.py"}


def test_a_compiled_slice_is_silent(caplog):
    """Torch would ask, in its log, not to change anything in place where things are made again; nothing does."""
    torch._dynamo.reset()
    rr = Racecar(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), torch.randn(4, 4), fraction=0.5)
    with caplog.at_level(logging.WARNING):
        torch.compile(rr, backend="aot_eager", fullgraph=True)(torch.randn(4, 4))[1].backward()
    assert not caplog.records
    assert rr.model[0].weight.grad.any()
