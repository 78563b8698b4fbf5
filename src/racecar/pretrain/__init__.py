"""Pre: greedy layer-wise autoencoder pretraining, the classic baseline."""

from racecar.pretrain.store import Pretrained
from racecar.pretrain.training import greedy

__all__ = ["Pretrained", "greedy"]
