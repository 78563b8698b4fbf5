"""Greedy layer-wise autoencoder pretraining, a classic baseline ("Pre" in the tables)."""

from racecar.pretrain.store import Pretrained
from racecar.pretrain.training import greedy

__all__ = ["Pretrained", "greedy"]
