"""What ``import racecar`` brings: every public name, and torch only when it is needed."""

import subprocess
import sys

import pytest

import racecar


def test_torch_waits():
    """The command line says what it can, and starts workers, before torch is imported, which takes seconds."""
    code = "import sys, racecar, racecar.cli.app, racecar_lab.running.engines.processes; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"


IMPORT = """
import atexit, gc, os, sys
gc.disable()  # all of it stays
atexit.register(gc.freeze)
import torch
for first in sys.argv[1:4]:
    if not (child := os.fork()):
        import racecar
        print(*(getattr(racecar, name).__name__.rpartition(".")[2] for name in (first, *sys.argv[4:])), flush=True)
        os._exit(0)
    os.waitpid(child, 0)

import atexit, json, logging, pkgutil, signal, threading, warnings
import torch.nn.modules.module as modules

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
for room in ("support", "rules", "watch", "plan", "reverse", "racecar", "functional", "every", "orthogonality"):
    found = __import__(f"racecar.{room}", fromlist=["_"])
    for one in pkgutil.iter_modules(getattr(found, "__path__", [])):
        __import__(f"racecar.{room}.{one.name}")
after = state()
print(json.dumps([(name, before[name], after[name]) for name in before if before[name] != after[name]]))
"""
FIRSTS = ["Racecar", "Every", "rules"]


@pytest.fixture(scope="module")
def printed():
    """By a fresh process that has imported torch alone, and by three that are forked from it."""
    command = [sys.executable, "-c", IMPORT, *FIRSTS, *racecar.__all__]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def test_every_public_name(printed):
    """Whichever is asked for first; each time in a process that has imported torch alone."""
    assert [line.split() for line in printed[:-1]] == [[first, *racecar.__all__] for first in FIRSTS]
    assert set(racecar.__all__) <= set(dir(racecar))


def test_import_changes_nothing_global(printed):
    """No logger, no warning filter, no hook, no random state, no setting of torch."""
    assert printed[-1] == "[]"


def test_other_names():
    with pytest.raises(AttributeError, match="'racecar' has no attribute 'Racecars'"):
        racecar.Racecars  # noqa: B018
