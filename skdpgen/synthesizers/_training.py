"""How networks are trained: rate, steps and bound of DP-SGD; the template, device and seed of a net."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from sklearn.base import clone

from .._types import UnitRelation
from ..accounting import Phase
from ..utils.progress import shows_bars


@dataclass(frozen=True)
class Training:
    """DP-SGD: what one record may do to a step, and how often."""

    sampling_rate: float  # probability of a record to take part in a step
    steps: int
    gradient_bound: float  # norm to which the gradient of one record is clipped

    def phase(self, label, share):
        """The phase of these steps."""
        return Phase(label, share, steps=self.steps, sampling_rate=self.sampling_rate)


@dataclass(frozen=True, eq=False)
class Network:
    """How networks are trained, whatever they model."""

    template: object | None  # DPNet, which is cloned; None is the default of the synthesizer
    noise: str
    device: str
    seed: int  # of the initialisation
    progress: bool
    has_checkpoint: bool = False  # whether the fit has a checkpoint, which becomes the file of the released model

    @classmethod
    def of(cls, parameters, seed):
        """From the parameters of a synthesizer."""
        own = (parameters.get("net"), parameters["noise"], parameters["device"])
        return cls(*own, seed, shows_bars(parameters["progress"]), parameters.get("checkpoint") is not None)

    def has_own_layers(self, usual):
        """Whether the module is of another class than the usual one, or gets modules as its parameters."""
        from torch import nn

        if self.template is None:
            return False
        given = self.template.get_params_for("module").values()
        return self.template.module is not usual or any(isinstance(value, nn.Module) for value in given)

    def check_saved(self, can_be_saved):
        """Refuse a checkpoint of a model that cannot be saved; before the charge."""
        if self.has_checkpoint and not can_be_saved:
            raise ValueError(
                "checkpoint= is for models that can be saved, and files of models hold no code: leave out "
                "checkpoint=, or your own modules"
            )

    def check(self):
        """Refuse a template that is no `DPNet`, and a device that torch does not have."""
        from ..nn._dp_net import check_template

        check_template(self.template)
        check_device(self.device)

    def make(self, default, plan, progress_text, **module):
        """The net of one fit: the template, or ``default()``, with a plan and parameters of its module.

        Raises ValueError: a template that sets one of these parameters itself, or whose module does not take it.
        """
        net = default()
        if self.template is not None:
            from ..nn._parameters import check_made

            check_made(self.template, module, net.module)
            net = clone(self.template)
        return net.set_params(
            plan=plan,
            noise=self.noise,
            device=self.device,
            random_state=self.seed,
            progress_text=progress_text,
            verbose=2 if self.progress else 0,
            **{f"module__{name}": value for name, value in module.items()},
        )


def resolve_sampling(training, n_rows, relation, /, *, batch_size=None, epochs=None, **others):
    """Return a `Training` as `batch_size` and `epochs` set it, where the number of rows is public.

    Between units it is private under both relations: a unit may have any number of rows. The other parameters of a
    synthesizer may come along, and have no effect.
    """
    if batch_size is None and epochs is None:
        return training
    if isinstance(relation, UnitRelation):
        raise ValueError(
            "batch_size and epochs need the number of rows, which is private with units, as a unit may have any number "
            "of them: give sampling_rate and steps; nothing was charged"
        )
    if relation != "replace_one":
        raise ValueError(
            "batch_size and epochs need the number of rows, which is private under add_or_remove_one: "
            "give sampling_rate and steps"
        )
    rate = training.sampling_rate if batch_size is None else min(1.0, batch_size / n_rows)
    steps = training.steps if epochs is None else math.ceil(epochs / rate)
    return replace(training, sampling_rate=rate, steps=steps)


def check_device(device):
    """Raise ValueError for a device that torch does not have."""
    import torch

    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device={device!r} cannot be used: {str(error).splitlines()[0]}") from None
