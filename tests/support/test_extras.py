"""`import racecar` needs torch alone; what needs more says which extra brings it."""

import ast
import importlib
import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

import racecar
from racecar import MissingExtra
from racecar.support.extras import need
from tests.sources import SOURCE, trees

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NAME = PROJECT["name"]


# --- need ---------------------------------------------------------------------------------------------------------


def test_what_is_there_is_returned():
    import json.decoder

    assert need("json", "inspect") is json
    assert need("json.decoder", "inspect") is json.decoder


@pytest.mark.parametrize("module", ["no_such_package", "no_such_package.part.of_it"])
def test_what_is_missing_is_named(module: str):
    with pytest.raises(MissingExtra) as caught:
        need(module, "lab")
    assert str(caught.value) == f"this needs no_such_package: pip install '{NAME}[lab]'"
    assert isinstance(caught.value, ImportError)
    assert caught.value.__suppress_context__, "one error, not two"


def test_a_hidden_package_counts_as_missing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "rich", None)
    with pytest.raises(MissingExtra, match=re.escape(f"'{NAME}[inspect]'")):
        need("rich", "inspect")


BROKEN = {
    "needs_another": ("import no_such_dependency", ModuleNotFoundError, "no_such_dependency"),
    "old_dependency": ("from json import no_such_name", ImportError, "no_such_name"),
    "no_import_error": ("raise RuntimeError('of its own')", RuntimeError, "of its own"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_package_is_not_called_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str):
    """To install the extra again would not help."""
    code, error, message = BROKEN[name]
    (tmp_path / f"broken_{name}.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(error, match=message) as caught:
        need(f"broken_{name}", "inspect")
    assert not isinstance(caught.value, MissingExtra)


# --- the extras bring what they promise ---------------------------------------------------------------------------

DISTRIBUTIONS = {"PIL": "pillow", "phi": "phiflow", "sklearn": "scikit-learn"}


def brought(extra: str) -> set[str]:
    """Every package that an extra installs, extras within extras too."""
    found: set[str] = set()
    for requirement in PROJECT["optional-dependencies"].get(extra, ()):
        inner = re.fullmatch(rf"{NAME}\[(.+)\]", requirement)
        parts = [brought(one) for one in inner[1].split(",")] if inner else []
        found = found.union(*parts, () if inner else {re.split(r"[^\w.-]", requirement)[0].lower()})
    return found


def needs() -> list[tuple[str, str, str]]:
    """(file, package, extra) of every `need(…)` in the source."""
    found = []
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "need":
                module, extra = (one.value for one in node.args if isinstance(one, ast.Constant))
                found.append((str(path.relative_to(SOURCE)), module.partition(".")[0], extra))
    return found


def test_every_extra_brings_what_is_needed():
    found = needs()
    assert found
    missing = [one for one in found if DISTRIBUTIONS.get(one[1], one[1]) not in brought(one[2])]
    assert not missing


def test_nothing_tells_to_install_the_package_that_is_called_racecar():
    """On the package index that name is somebody else's."""
    assert NAME == "racecar-training"
    texts = [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/*.md"),
        *SOURCE.rglob("*.py"),
        ROOT / "pyproject.toml",
        ROOT / "Makefile",
    ]
    stranger = re.compile(r"pip install\b[^#\n]*\bracecar(?![-_]training)\b(?!/)|\bracecar\[[a-z]")
    found = [f"{path.name}: {hit[0]}" for path in texts for hit in stranger.finditer(path.read_text())]
    assert not found


# --- torch alone --------------------------------------------------------------------------------------------------

BLOCKER = """
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


def alone(script: str) -> str:
    """Run a script in a process where nothing but torch can be imported."""
    begin = f"import atexit, gc, sys; gc.disable(); atexit.register(gc.freeze); sys.path.insert(0, {str(SOURCE)!r})"
    code = textwrap.dedent(BLOCKER) + textwrap.dedent(script)
    command = [sys.executable, "-I", "-c", f"{begin}\n{code}"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def output() -> str:
    """What a tour of the package prints where torch is alone; it fails at the first thing that is wrong."""
    return alone(
        """
        warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
        import torch
        torch.set_num_threads(1)
        warnings.simplefilter("error")
        import racecar, racecar.orthogonality, racecar.pretrain, racecar.inspect
        print("compiler:", "torch._dynamo" in sys.modules)
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
                assert str(error).endswith("pip install 'racecar-training[inspect]'") and "\\n" not in str(error), error
            else:
                raise SystemExit(f"{name} did not say what is missing")
        with racecar.support.progress.bar("x", 1) as advance:  # not asked for, so not missed
            advance(1, "")
        print("missed:", *sorted(asked))
        """
    )


def test_torch_alone_is_enough(output: str):
    """Everything that is no figure and no command works without NumPy, too; the rest says what to install."""
    missed = output.splitlines()[-1].split()
    assert {"matplotlib", "rich"} <= set(missed), "the tour would pass if nothing were blocked"


def test_the_import_does_not_load_the_compiler(output: str):
    """torch._dynamo takes as long to import as all the rest of torch; who does not compile need not wait for it."""
    assert output.splitlines()[0] == "compiler: False"


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
