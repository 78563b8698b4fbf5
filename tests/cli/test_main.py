"""The command itself: what it needs, and what it loads to start."""

import subprocess
import sys

import pytest

from racecar import __version__
from racecar.cli import main
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


def test_as_a_process():
    """Version and help are quick: none of the large packages is loaded for them, and for the version no extra. And a
    status reaches the shell."""
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
