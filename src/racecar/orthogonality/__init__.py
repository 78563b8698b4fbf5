"""The orthogonality regularisers that a practitioner would pick instead of ours: so, dso, mc, srip and ocnn.

Each is a pure function ``f(model_or_weights, …) -> scalar``, a sum over layers that is differentiable in the weights:

    loss = task_loss + BANSAL.at(epoch) * srip(model)

W is a layer's weight flattened at its first dimension: out × rest for a linear layer and for a convolution. The weight
of a transposed convolution is stored as that of the convolution whose adjoint it is (in × out/groups × k), and is
flattened as that convolution's: a kernel that an encoder and its decoder share gives the same term in both.
The filters of all groups of a grouped convolution stand in one W, as in the published codes; only ocnn, which is about
the layer's operator, takes each group by itself. The gates of an LSTM or GRU, too, stand in one W: each of its
weights, called ``lstm.weight_ih_l0``, ``lstm.weight_hh_l0``, … as in a plan.

Which Gram matrix is asked to be the identity is the argument ``side``, because papers and codes differ:

    "rows"      W Wᵀ, filters against filters. Bansal et al. print WᵀW, but of a matrix that is rest × out: this one.
    "columns"   WᵀW of our out × rest, which some of their published codes take.
    "smaller"   the smaller of the two, as others do. The only one of which a zero can always be reached:
                a wide W has no orthonormal columns, a tall W no orthonormal rows.
"""

from racecar.orthogonality.gram import dso, mc, so
from racecar.orthogonality.schedule import BANSAL, BANSAL_CODE, Schedule
from racecar.orthogonality.selfconv import ocnn
from racecar.orthogonality.spectral import srip

__all__ = ["BANSAL", "BANSAL_CODE", "Schedule", "dso", "mc", "ocnn", "so", "srip"]
