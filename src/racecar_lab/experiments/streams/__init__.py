"""The experiment on streams of tasks: which training method keeps nets able to learn? It is ours, not the paper's.

``config`` has the streams and their protocols, ``pool`` the pictures, ``drawing`` the tasks drawn from the pictures,
``learning`` the training, ``searching`` the settings that a search tries, ``claims`` the claims, written before the
runs, ``rule`` the rule that answers questions from them, and ``tables``, ``transfer`` and ``figures`` the report.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from racecar_lab.datasets import Source, digits
from racecar_lab.experiment import Experiment, Quick, Reporting, Stage, Task
from racecar_lab.experiments.streams.claims import SEEDS, all_claims
from racecar_lab.experiments.streams.config import CHOOSING, StreamsConfig, method_of
from racecar_lab.experiments.streams.figures import all_figures
from racecar_lab.experiments.streams.pool import pool_of
from racecar_lab.experiments.streams.searching import StreamSearch, usual
from racecar_lab.experiments.streams.tables import sentences_and_tables
from racecar_lab.search_space import Search
from racecar_lab.streams import DESIGNS, METHODS
from racecar_lab.streams.nets import stream_net
from racecar_lab.training.variants import Variant

MEANINGS = {"shrink-and-perturb": "p", "redo": "τ", "continual-backprop": "ρ"}
"""Way in which a method changes parameters → the symbol of its weight in the literature. The symbol of all other
methods is λ."""
HELD = 1 / 6
"""Share of the training pictures that a search holds out, on streams whose tasks have test pictures."""


class Streams(Experiment[StreamsConfig]):
    name = "streams"
    Config = StreamsConfig
    engine = "streams"
    quick = Quick(
        {"stream": "labels", "images": 40, "tasks": 4, "passes": 6, "batch": 8},
        shipped={"shipped": True, "images": 30},
    )
    variants = tuple(METHODS)
    seeds = SEEDS
    claims = all_claims()
    search = StreamSearch(lrs={}, weights={}, metric="online_accuracy", valid=0.0, first_seed=CHOOSING)
    reporting = Reporting(
        title="Streams of tasks: what keeps nets able to learn",
        section="ours",
        summary=(
            "Small nets are trained on one task after another: digits with permuted pixels, random labels, pairs of "
            "classes. Trained plainly they lose the ability to learn. 28 methods, each with as many settings, which "
            "are chosen on streams of their own; others are judged, by rules that were written before."
        ),
        describe_data=digits.describe,
        figures=lambda runs: all_figures(Streams(), runs),
        sentences_and_tables=lambda runs: sentences_and_tables(Streams(), runs),
    )

    def variant(self, name: str) -> Variant:
        """Describe the method of this name for reports, as a ``Variant``: name, explanation, and symbol of its
        weight."""
        method = method_of(name)
        symbol = MEANINGS.get(method.change, "share" if method.coupling == "ratio" else "λ")
        meaning = symbol if method.weights else ""
        return Variant(name, method.about, "plain" if name == "Std" else "method", meaning=meaning)

    def fingerprint(self, config: StreamsConfig, folder: Path | None) -> str:
        return "shipped digits" if config.shipped else config.protocol.source.title

    def sources(self, config: StreamsConfig) -> tuple[Source, ...]:
        return () if config.shipped else (config.protocol.source,)

    def data(self, config: StreamsConfig, seed: int, folder: Path | None) -> Mapping[str, Task]:
        """One task, "A": the pictures from which all tasks of the stream are drawn, the same for every seed."""
        return {"A": pool_of(config, folder)}

    def network(self, config: StreamsConfig, dropout: float = 0.0) -> nn.Module:
        shape = (1, 28, 28) if config.protocol.source.name == "mnist" else (3, 32, 32)
        net = stream_net(DESIGNS[config.net], shape, config.protocol.classes, norm=config.norm)
        with torch.no_grad():
            for name, parameter in net.named_parameters():
                parameter.copy_(net.fresh(torch.randint(2**62, ()), 0, name))
        return net

    def stages(self, config: StreamsConfig) -> tuple[Stage, ...]:
        return (Stage("A", light=True),)

    def weight(self, config: StreamsConfig, variant: str) -> float:
        return usual(method_of(variant))[0]

    def reverse(self, config: StreamsConfig) -> dict[str, Any]:
        """Arguments of ``Racecar``: the paper's reverse loss, for the methods RR and lRR."""
        return {"scale": "sum", "gradient": "both", "reduction": "sum", "weight": {"*": 1.0, "head": 0.0}}

    def search_for(self, config: StreamsConfig) -> Search | None:
        """The search for settings with this configuration. Where tasks have test pictures, it judges by held-out
        training pictures in their place."""
        valid = HELD if config.protocol.tested else 0.0
        metric = replace(config, valid=config.valid or valid).judged_by
        return replace(self.search, valid=valid, metric=metric, beside=(f"first_{metric}",))
