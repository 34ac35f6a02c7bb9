"""Networks of synthesizers: how a template becomes the net of a fit, and what is refused before the charge."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Network", "check_device"]


@dataclass(frozen=True, eq=False)
class Network:
    """How networks are trained, whatever they model.

    Parameters
    ----------
    template : DPNet or None
        Cloned; None is the default of the synthesizer.
    noise, device : str
    seed : int
        Of the initialisation.
    progress : bool
    """

    template: object | None
    noise: str
    device: str
    seed: int
    progress: bool

    @classmethod
    def of(cls, parameters, seed):
        """From the parameters of a synthesizer."""
        return cls(parameters["net"], parameters["noise"], parameters["device"], seed, parameters["progress"])

    def make(self, default, plan, progress_text, **module):
        """The net of one fit: the template, or ``default()``, with a plan and parameters of its module."""
        from sklearn.base import clone

        net = default() if self.template is None else clone(self.template)
        return self.set_up(net, plan, progress_text, **module)

    def set_up(self, net, plan, progress_text, **module):
        """Give a net its plan and the parameters of its module."""
        return net.set_params(
            plan=plan,
            noise=self.noise,
            device=self.device,
            random_state=self.seed,
            progress_text=progress_text,
            verbose=2 if self.progress else 0,
            **{f"module__{name}": value for name, value in module.items()},
        )


def check_device(device):
    """Raise ValueError for a device that torch does not have."""
    import torch

    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device={device!r} cannot be used: {str(error).splitlines()[0]}") from None
