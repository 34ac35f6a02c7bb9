"""A callback that keeps released parameters of chosen steps; apart from what imports no torch."""

from __future__ import annotations

from skdpgen.nn import ParameterAverage

__all__ = ["Recorder"]


class Recorder(ParameterAverage):
    """Average of the parameters that is also kept at steps chosen in advance.

    Parameters
    ----------
    at : sequence of int
        Steps, in ascending order; the first is 1.
    decay : float, default=0.0
        Of the average; 0 is the parameters themselves.

    Attributes
    ----------
    states : dict of int to state dict
        Step -> average of the module's parameters, on the CPU.
    """

    def __init__(self, at, decay=0.0):
        super().__init__(decay)
        self.at = at
        self.states = {}

    # the net is a template that fit clones: what is kept has to be found here
    def __sklearn_clone__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def on_batch_end(self, net, training=True, **kwargs):
        super().on_batch_end(net, training=training, **kwargs)
        if self.step_ in self.at:
            names = [name for name, p in net.module_.named_parameters() if p.requires_grad]
            state = {name: value.detach().cpu().clone() for name, value in net.module_.state_dict().items()}
            averages = dict(zip(names, (a.cpu().clone() for a in self.average_), strict=True))
            self.states[self.step_] = {**state, **averages}
