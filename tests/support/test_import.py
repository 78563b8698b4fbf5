"""What ``import racecar`` needs, which is torch alone; what it brings, and what it leaves alone."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import racecar
from tests.sources import SOURCE

ROOT = Path(__file__).parents[2]
FIRSTS = ["Racecar", "Every", "rules"]


def test_torch_waits():
    """The command line says what it can, and starts workers, before torch is imported, which takes seconds."""
    code = "import sys, racecar, racecar.cli.app; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"


# --- torch alone --------------------------------------------------------------------------------------------------

BLOCKED = r"""
import sys, warnings

OWN = {"torch", "torchgen", "functorch", "racecar"}
# what torch itself requires to be installed
OF_TORCH = {"filelock", "typing_extensions", "setuptools", "sympy", "mpmath", "networkx", "jinja2", "markupsafe",
            "fsspec"}
asked = set()

class TorchAlone:
    # Finds what a finder finds, but for other people's packages: as if they were not installed.
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in OWN | OF_TORCH or top in sys.stdlib_module_names or top.startswith("_"):
            return self.finder.find_spec(name, path, target)
        asked.add(top)

    def __getattr__(self, name):
        return getattr(self.finder, name)

sys.meta_path[:] = [TorchAlone(finder) for finder in sys.meta_path]
for package in ("numpy", "matplotlib", "rich", "typer", "safetensors", "PIL", "scipy", "sklearn", "transformers"):
    try:
        __import__(package)
    except ModuleNotFoundError as error:
        assert error.name == package
    else:
        raise SystemExit(f"{package} is not blocked")
asked.clear()
"""
"""Nothing but torch can be imported."""

NAMES = """
import os
warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
import torch
torch.set_num_threads(1)
for first in sys.argv[1:4]:
    if not (child := os.fork()):
        import racecar
        print(*(getattr(racecar, name).__name__.rpartition(".")[2] for name in (first, *sys.argv[4:])), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""
"""Every public name, in three processes, whichever is asked for first."""

GLOBALS = """
import json, logging, pkgutil, signal, threading
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

warnings.simplefilter("error")
before = state()
import racecar, racecar.orthogonality, racecar.pretrain, racecar.inspect
print("compiler:", "torch._dynamo" in sys.modules)
for room in ("support", "rules", "watch", "plan", "reverse", "racecar", "functional", "every", "orthogonality"):
    found = __import__(f"racecar.{room}", fromlist=["_"])
    for one in pkgutil.iter_modules(getattr(found, "__path__", [])):
        __import__(f"racecar.{room}.{one.name}")
after = state()
print(json.dumps([(name, before[name], after[name]) for name in before if before[name] != after[name]]))
"""
"""What the import changes of what belongs to the whole process."""

TOUR = r"""
from racecar.inspect import figures, style

for package in (racecar, racecar.orthogonality, racecar.inspect):
    for name in package.__all__:
        getattr(package, name)

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(144, 6), torch.nn.Tanh(), torch.nn.Linear(6, 2))
x, y = torch.rand(8, 1, 12, 12), torch.arange(8) % 2
output, loss = racecar.Racecar(model, x)(x)
(output.square().sum() + loss + racecar.orthogonality.so(model)).backward()
assert [one.layer for one in racecar.pretrain.greedy(model, [(x, y)])] == ["1", "3"]
vectors = racecar.inspect.singular_vectors(model, "1", data=x)
racecar.inspect.similarity(vectors, x)
inverse = racecar.inspect.invertibility(model, x, range=1.0)
leak = racecar.inspect.leakage(model, inverse)
sweep = racecar.inspect.bin_sweep(model, x, y, bins=[2])
print(vectors, inverse, leak, sweep[2])

drawn = {
    "vectors_figure": vectors, "spectrum_figure": vectors, "plane_figure": sweep[2], "sweep_figure": sweep,
    "similarity_figure": racecar.inspect.similarity(vectors, x),
    "invertibility_figure": inverse, "rebuilt_figure": inverse, "leakage_figure": leak,
        "plasticity_figure": [(0, racecar.inspect.plasticity(model, x))],
}
calls = {name: (lambda draw=getattr(figures, name), found=found: draw(found)) for name, found in drawn.items()}
assert set(calls) == {name for name in vars(figures) if name.endswith("_figure") and name != "new_figure"}
calls["save"] = lambda: style.save(None, "nowhere")
calls["bar"] = lambda: racecar.support.progress.bar("x", 1, True).__enter__()
for name, call in calls.items():
    try:
        call()
    except racecar.MissingExtra as error:
        assert str(error).endswith("pip install 'racecar-training[inspect]'") and "\n" not in str(error), error
    else:
        raise SystemExit(f"{name} did not say what is missing")
with racecar.support.progress.bar("x", 1) as advance:  # not asked for, so not missed
    advance(1, "")
print("missed:", *sorted(asked))
"""
"""Everything that is no figure and no command works; the rest says what to install."""


@pytest.fixture(scope="module")
def printed() -> list[str]:
    """What a process prints where torch is alone; it fails at the first thing that is wrong."""
    begin = f"import atexit, gc, sys; gc.disable(); atexit.register(gc.freeze); sys.path.insert(0, {str(SOURCE)!r})"
    code = "\n".join((begin, BLOCKED, NAMES, GLOBALS, TOUR))
    command = [sys.executable, "-I", "-c", code, *FIRSTS, *racecar.__all__]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


def test_torch_alone_is_enough(printed: list[str]):
    """Without NumPy, too."""
    missed = printed[-1].split()
    assert {"matplotlib", "rich"} <= set(missed), "the tour would pass if nothing were blocked"


def test_every_public_name(printed: list[str]):
    """Whichever is asked for first; each time in a process that has imported torch alone."""
    assert [line.split() for line in printed[:3]] == [[first, *racecar.__all__] for first in FIRSTS]
    assert set(racecar.__all__) <= set(dir(racecar))


def test_the_import_does_not_load_the_compiler(printed: list[str]):
    """torch._dynamo takes as long to import as all the rest of torch; who does not compile need not wait for it."""
    assert printed[3] == "compiler: False"


def test_import_changes_nothing_global(printed: list[str]):
    """No logger, no warning filter, no hook, no random state, no setting of torch."""
    assert printed[4] == "[]"


@pytest.mark.parametrize("name", ["racecar", "racecar.inspect", "racecar.orthogonality"])
def test_public_names_are_there(name: str):
    module = importlib.import_module(name)
    assert sorted(module.__all__) == sorted(set(module.__all__))
    for one in module.__all__:
        assert getattr(module, one) is not None
    star: dict[str, object] = {}
    exec(f"from {name} import *", star)
    assert set(module.__all__) <= set(star)


def test_the_contract_s_imports():
    from racecar import Racecar, orthogonality, pretrain
    from racecar.inspect import information_plane, invertibility, leakage, similarity, singular_vectors

    assert all(map(callable, (Racecar, information_plane, invertibility, leakage, similarity, singular_vectors)))
    assert all(callable(getattr(orthogonality, name)) for name in ("so", "dso", "mc", "srip", "ocnn"))
    assert callable(pretrain.greedy)
    assert {"MissingExtra", "NoRuleWarning", "NotReversible", "NothingToReverse", "Racecar"} <= set(racecar.__all__)


def test_other_names():
    with pytest.raises(AttributeError, match="'racecar' has no attribute 'Racecars'"):
        racecar.Racecars  # noqa: B018
