"""``racecar run``, ``search`` and ``report`` work where nothing can be installed: what is missing there is imported by
the commands that need it, and by no other."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
MISSING = ("ray", "pooch", "statsmodels", "tyro", "phi", "lpips")
SCRIPT = f"""
import sys
sys.modules.update(dict.fromkeys({MISSING}))
from racecar.cli.app import run
short = ["own_experiment:Rings", "--set", "epochs=1", "--seeds", "1", "--workers", "1"]
sys.exit(
    run(["search", *short])
    or run(["run", *short, "--tuned", "out/rings-search/tuned.json"])
    or run(["report", "out/rings", "--experiment", "own_experiment:Rings"])
)
"""


def test_commands_without_what_is_missing_on_the_accelerator_machine(tmp_path):
    shutil.copy(ROOT / "examples" / "own_experiment.py", tmp_path)
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-P", "script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert "Three rings" in (tmp_path / "out" / "rings" / "report.html").read_text()
