"""What docs/when.md says of smoke's autoencoders, filled from a reversible generator."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from benchmarks.sentences import sure
from racecar_lab.experiments import experiment
from racecar_lab.report.findings import Finding
from racecar_lab.report.section import findings_of
from racecar_lab.report.verdicts import UNDECIDED
from racecar_lab.running.results import Store

FOLDER = "smoke-autoencoder"


def halves(folder: Path) -> str:
    """By how much RR's autoencoders end with less error than others, beside the paper's figures; what of it is sure."""
    runs = Store(folder / FOLDER).runs()
    found = {one.claim.text: one for one in findings_of(experiment(FOLDER), runs) if one.gain is not None}
    sure(all(one.verdict == UNDECIDED for one in found.values()), "nothing is decided of smoke's autoencoders")
    (epochs,) = {run.config["autoencoder_epochs"] for run in runs}
    both = "Simulations: RR with both halves has less error than Std"
    from_std, from_scratch, alone = (
        " and ".join(less(found[f"{claim}: {what}"]) for what in ("the real plume", "photographs of smoke"))
        for claim in (
            "RR's decoder has less error than Std's",
            "RR's decoder has less error than Std from scratch",
            "RR's decoder alone has less error than both its halves",
        )
    )
    dead = Counter(run.variant for run in runs if run.dead or not run.finished)
    of = Counter(run.variant for run in runs)
    return (
        f"**Its halves in an autoencoder** ([smoke-autoencoder]({{results}}/{FOLDER}/report.md), in small, "
        f"{epochs} epochs, {len({run.seed for run in runs})} seeds): nothing is decided. By so much is RR's L2 smaller "
        f"on simulations, with both halves from RR: {less(found[f'{both} with its decoder'])} beside Std's decoder, "
        f"{less(found[f'{both} with both halves'])} beside both halves of Std, the control that the paper lacks, "
        f"{less(found[f'{both} from scratch'])} beside Std from scratch. On a real plume and on photographs, with the "
        f"decoder from RR: {from_std} beside Std's, {from_scratch} beside Std from scratch, {alone} beside both halves "
        f"of RR. {dead['Std']} of {of['Std']} nets of Std died and {dead['RR']} of {of['RR']} of RR."
    )


def less(found: Finding) -> str:
    """As "12 % (3 to 20; 13.3 in the paper)", with its corrected interval."""
    assert found.gain is not None
    low, high = map(_percent, found.interval or (found.gain.mean, found.gain.mean))
    paper = "" if found.paper is None else f"; {100 * found.paper:.1f} in the paper"
    return f"{_percent(found.gain.mean)} % ({low} to {high}{paper})"


def _percent(gain: float) -> str:
    return f"{100 * gain:z.0f}".replace("-", "−")
