"""Build the wheel and the sdist, and try both in empty environments: what ``make package`` does.

pip installs each into an environment of its own, without dependencies. Those are links to the packages of this
interpreter that the metadata ask for: first what racecar needs at all, then what an extra adds. So torch is not
downloaded again, which would take minutes; and a requirement that pyproject.toml forgets is noticed, as nothing else is
seen.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
NAME = PROJECT["project"]["name"]

TORCH_ALONE = """
import importlib.metadata, importlib.util, pathlib, sys, torch, racecar
assert pathlib.Path(racecar.__file__).is_relative_to(sys.prefix), racecar.__file__
assert importlib.metadata.version(sys.argv[1]) == racecar.__version__
assert importlib.util.find_spec("numpy") is None, "torch is not alone"
model, x = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2)), torch.rand(8, 4)
output, loss = racecar.Racecar(model, x)(x)
assert torch.equal(output, model(x)) and loss > 0
loss.backward()
assert all(bool(model[i].weight.grad.abs().sum() > 0) for i in (0, 2))
print(racecar.__version__)
"""


def main() -> None:
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    run(sys.executable, "-m", "build", ROOT)  # the wheel is made from the sdist
    (wheel,), (sdist,) = (list((ROOT / "dist").glob(kind)) for kind in ("*.whl", "*.tar.gz"))
    check_files(wheel, sdist)
    for made in (wheel, sdist):
        with tempfile.TemporaryDirectory() as folder:
            try_out(made, Path(folder))
        print(f"{made.name}: installed and tried")


def check_files(wheel: Path, sdist: Path) -> None:
    """All that the repository has must be in them, and nothing else of ours."""
    listed = run("git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard").splitlines()
    ours = {name for name in listed if (ROOT / name).is_file()}
    with zipfile.ZipFile(wheel) as file:
        packed = {f"src/{name}" for name in file.namelist() if ".dist-info/" not in name}
    compare(wheel, packed, {name for name in ours if name.startswith("src/")})
    with tarfile.open(sdist) as file:
        packed = {name.partition("/")[2] for name in file.getnames()} - {"PKG-INFO", ".gitignore"}
    named = PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["only-include"]
    always = ["LICENSE", "README.md", "pyproject.toml"]
    compare(sdist, packed, {name for name in ours if name.partition("/")[0] in [*named, *always]})


def compare(made: Path, packed: set[str], expected: set[str]) -> None:
    for what, names in (("lacks", expected - packed), ("has, though the repository has not,", packed - expected)):
        if names:
            raise SystemExit(f"{made.name} {what} {', '.join(sorted(names)[:5])}: {len(names)} files")


def try_out(made: Path, folder: Path) -> None:
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    python, command = folder / "bin" / "python", folder / "bin" / "racecar"
    run(sys.executable, "-m", "pip", "-q", "--python", python, "install", "--no-deps", made)
    packages = Path(run(python, "-c", "import site; print(site.getsitepackages()[0])").strip())
    (metadata,) = Distribution.discover(name=NAME, path=[str(packages)])
    link_required(metadata, "", packages)
    version = run(python, "-I", "-W", "ignore", "-c", TORCH_ALONE, NAME)
    assert run(command, "--version") == f"racecar {version}"
    link_required(metadata, "inspect", packages)
    assert "pip install 'racecar-training[lab]'" in run(command, "run", "--help")
    link_required(metadata, "lab", packages)
    assert "peaks" in run(command, "list")


def link_required(one: Distribution, extra: str, into: Path) -> None:
    """Link what a distribution requires with an extra, and what that requires."""
    for requirement in map(Requirement, one.requires or ()):
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        found = one if requirement.name == one.name else distribution(requirement.name)
        for file in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__", "bin"}:
            if not (into / file).exists():
                (into / file).symlink_to(str(found.locate_file(file)))
        for inner in ("", *requirement.extras):
            link_required(found, inner, into)


def run(*command: str | Path) -> str:
    """What a command prints; where it fails, so does this. It sees no source tree."""
    outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    place = tempfile.gettempdir()
    done = subprocess.run([*map(str, command)], cwd=place, env=outside, text=True, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise SystemExit(f"{done.stdout}\n{' '.join(map(str, command[:4]))} … left with status {done.returncode}")
    return done.stdout


if __name__ == "__main__":
    main()
