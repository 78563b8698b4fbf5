"""The command itself: what it needs, and what it loads to start."""

import subprocess
import sys

import pytest
import typer
from typer.main import get_command

from racecar import __version__
from racecar.cli import laboratory, main
from racecar.cli.app import run
from racecar.cli.inspect.explain import explain
from racecar.support import interrupts


@pytest.mark.parametrize("package", ["typer", "rich"])
def test_without_the_extra_one_line_says_what_to_install(monkeypatch, capsys, package):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setenv("PYTHONSAFEPATH", "")  # to be as it was afterwards, as the handlers of signals
    monkeypatch.setattr(interrupts, "listen", lambda: None)
    monkeypatch.setattr(interrupts, "end", lambda: None)
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    assert capsys.readouterr().err == f"racecar: this needs {package}: pip install 'racecar-training[inspect]'\n"


@pytest.mark.parametrize("package", laboratory.NEEDS)
def test_without_the_laboratory_one_line_says_what_to_install(monkeypatch, capsys, package):
    """For each of its commands, whatever options it is given; the library's commands stay."""
    monkeypatch.setitem(sys.modules, package, None)
    app = typer.Typer()
    app.command()(explain)
    laboratory.add_to(app)
    monkeypatch.setattr("racecar.cli.app._command", lambda: get_command(app))
    for arguments in (*([name] for name in laboratory.COMMANDS), ["run", "peaks", "--seeds", "5"], ["data", "list"]):
        assert run(arguments) == 2
        assert capsys.readouterr().err == f"racecar: this needs {package}: pip install 'racecar-training[lab]'\n"
    assert run(["explain", "--help"]) == 0


def test_the_laboratory_s_commands():
    """The placeholders that say what to install have the names of the real commands."""
    app = typer.Typer()
    laboratory.add_to(app)
    assert set(get_command(app).commands) == set(laboratory.COMMANDS)


def test_as_a_process():
    """--version and --help import no large package, --version not even typer; the exit status reaches the shell."""
    code = """if True:
        import sys
        from racecar.cli import main
        sys.argv = ["racecar", "--version"]
        try:
            main()
        except SystemExit as left:
            assert left.code == 0
        assert not {"torch", "typer", "rich"} & set(sys.modules)
        sys.argv = ["racecar", "--help"]
        try:
            main()
        except SystemExit as left:
            assert left.code == 0
        print(sorted({"torch", "transformers", "matplotlib", "PIL", "racecar.inspect"} & set(sys.modules)))
        sys.argv = ["racecar", "nowhere"]
        main()
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.startswith(f"racecar {__version__}\n")
    assert "explain" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"
    assert done.returncode == 2
    assert done.stderr == "racecar: No such command 'nowhere'.\n"
