"""The known orthogonality regularisers of weights, baselines for the racecar loss: so, dso, mc, srip and ocnn.

Each is a pure function ``f(model_or_weights, …) -> scalar``, a sum over layers that is differentiable in the weights:

    loss = task_loss + BANSAL.at(epoch) * srip(model)

W is a layer's weight as a matrix out × rest, flattened after the first dimension. A transposed convolution's weight
(in × out/groups × k) is flattened like that of the convolution whose adjoint it is: in × rest, so that a kernel shared
by an encoder and its decoder gives the same term in both. The filters of all groups of a grouped convolution are rows
of one W, as in the published codes; only ocnn, which is about the layer's operator, takes each group by itself. The
gates of an LSTM or GRU are rows of one W, too: one W for each of ``lstm.weight_ih_l0``, ``lstm.weight_hh_l0``, …

The argument ``side`` says which Gram matrix should become the identity, because papers and codes differ:

    "rows"      W Wᵀ, filters against filters. Bansal et al. print WᵀW, but their W is rest × out: the same matrix.
    "columns"   WᵀW with W out × rest, as in some of their published codes.
    "smaller"   the smaller of the two, as in others. Only its loss can always become 0: a W with more columns than
                rows has no orthonormal columns, one with more rows no orthonormal rows.
"""

from racecar.orthogonality.gram import dso, mc, so
from racecar.orthogonality.schedule import BANSAL, BANSAL_CODE, Schedule
from racecar.orthogonality.selfconv import ocnn
from racecar.orthogonality.spectral import srip

__all__ = ["BANSAL", "BANSAL_CODE", "Schedule", "dso", "mc", "ocnn", "so", "srip"]
