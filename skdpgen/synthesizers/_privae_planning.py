"""What PriVAE releases in a fit, and what it refuses before: functions of public parameters alone."""

from __future__ import annotations

import copy

from ..accounting import Phase
from ..exceptions import InvalidInputError
from ._planning import resolve_sampling

__all__ = ["check_groups", "make_net", "make_prior", "plan_phases", "resolve_settings", "training_plan"]

# Share of the budget for the number of rows and the classes' counts: denominators, and what `sample` draws.
_COUNT_SHARE = 0.02
_ALPHA = 10.0
# Records that a group is to be expected to have: its divergence is that of so few latents, but the mean over many small
# groups has little noise, for a record moves one of them alone. And the part of the groups in the noise of a step.
_GROUP_SIZE, _GROUP_SHARE = 16, 0.2
# Of the default net: steps as long as noisy gradients bear, and an average of the released parameters over some 100 of
# them, which takes away much of the noise.
_LEARNING_RATE, _AVERAGE = 5e-3, 0.99
_WITH_DIVERGENCE = ("alpha", "n_groups", "l2_bound_group")


def resolve_settings(settings, defaults):
    """Return the parameters with defaults filled in that depend on others.

    Parameters
    ----------
    settings : dict
        Parameters of the synthesizer.
    defaults : dict
        The constructor's.

    Raises
    ------
    ValueError
        Parameters that contradict one another, or that would do nothing in this combination.
    """
    settings = dict(settings)
    if settings["divergence"] is None:
        for name in (*_WITH_DIVERGENCE, *(("aggregation",) if settings["aggregation"] != "termwise" else ())):
            if settings[name] is not None:
                raise ValueError(f"{name}= is used with divergence= alone")
        if settings["beta"] == 0:
            raise ValueError("beta=0 without a divergence leaves the latents without a prior")
    else:
        if settings["alpha"] == 0:
            raise ValueError("alpha=0 leaves the divergence without effect: give divergence=None")
        whole = settings["aggregation"] != "termwise"
        for name in ("n_groups", "l2_bound_group"):
            if whole and settings[name] is not None:
                raise ValueError(f'{name}= is used with aggregation="termwise" alone')
        settings["alpha"] = _ALPHA if settings["alpha"] is None else settings["alpha"]
        settings["n_groups"] = 1 if whole else settings["n_groups"]
    if settings["n_mixture"] is not None and settings["prior"] != "mixture":
        raise ValueError('n_mixture= is used with prior="mixture" alone')
    for name, other in (("sampling_rate", "batch_size"), ("steps", "epochs")):
        if settings[other] is not None and settings[name] != defaults[name]:
            raise ValueError(f"{name} and {other} set the same thing: give one of them")
    if settings["image_shape"] is not None and settings["target"] is not None:
        raise ValueError("image_shape is for arrays, target for DataFrames")
    return settings


def plan_phases(rows, settings, neighboring):
    """Return the phases of a fit, in the order of their releases."""
    learned = list(rows.phases(settings["bounds_share"]))
    if neighboring != "replace_one" or _has_classes(rows):
        learned.append(Phase("counts", _COUNT_SHARE))
    rest = 1 - sum(phase.share for phase in learned)
    if rest <= 0:
        raise ValueError(f"bounds_share={settings['bounds_share']} leaves nothing to the training")
    return [
        *learned,
        Phase("training", rest, steps=settings["steps"], sampling_rate=settings["sampling_rate"]),
    ]


def _has_classes(rows):
    """Whether the model is conditional on classes; public."""
    if hasattr(rows, "target"):
        return rows.target is not None
    return rows.labels is not None and not rows.numeric_target


def check_groups(settings, n_rows, neighboring):
    """Refuse more groups than records to expect, where their number is public; set rate and steps by it."""
    settings.update(resolve_sampling(settings, n_rows, neighboring))
    if settings["divergence"] is None or neighboring != "replace_one":
        return
    expected = settings["sampling_rate"] * n_rows
    n_groups = _n_groups(settings, expected)
    needed = n_groups * _smallest(settings)
    if expected < needed:
        raise InvalidInputError(
            f"n_groups={n_groups} groups of at least {_smallest(settings)} need {needed} records a step; "
            f"{expected:.4g} are to be expected (of batch_size, or sampling_rate)"
        )


def _n_groups(settings, expected_batch_size):
    """Number of groups of a step; by default by the expected batch size, which is public or released."""
    return settings["n_groups"] or max(1, int(expected_batch_size // _GROUP_SIZE))


def _divergence(settings, expected_group_size=1.0):
    from ..nn._divergences import make_divergence

    return make_divergence(settings["divergence"], expected_group_size)


def _smallest(settings):
    return _divergence(settings).min_group_size


def make_prior(settings, n_latent):
    """A prior of the settings, the user's own as a copy: training must not change a parameter of the estimator."""
    import torch

    from ..nn import GaussianMixturePrior, NormalPrior, SparsePrior

    prior = settings["prior"]
    if prior == "normal":
        return NormalPrior()
    if prior == "sparse":
        return SparsePrior()
    if prior == "mixture":
        generator = torch.Generator().manual_seed(settings["seed"])
        means = torch.randn((settings["n_mixture"] or 10, n_latent), generator=generator)
        return GaussianMixturePrior(means, variance=0.25, learned=True)
    return copy.deepcopy(prior)


def make_likelihood(name, widths=None):
    """A likelihood of its name."""
    from ..nn import BernoulliLikelihood, GaussianLikelihood, LaplaceLikelihood, TableLikelihood

    if name == "table":
        return TableLikelihood(widths)
    return {"bernoulli": BernoulliLikelihood, "gaussian": GaussianLikelihood, "laplace": LaplaceLikelihood}[name]()


def make_net(settings, n_features, n_labels, likelihood, *, plan=None, progress_text=""):
    """The net of the settings, or the default.

    Parameters
    ----------
    settings : dict
    n_features, n_labels : int
    likelihood : module
    plan : DPSGDPlan, default=None
    progress_text : str
    """
    from sklearn.base import clone

    from ..nn import DPNet, ParameterAverage, PriVAEModule

    default = DPNet(PriVAEModule, lr=_LEARNING_RATE, callbacks=[("average", ParameterAverage(_AVERAGE))])
    net = default if settings["net"] is None else clone(settings["net"])
    expected = 1.0 if plan is None else plan.expected_batch_size / getattr(plan, "n_groups", 1)
    return net.set_params(
        plan=plan,
        noise=settings["noise"],
        device=settings["device"],
        random_state=settings["seed"],
        progress_text=progress_text,
        verbose=2 if settings["progress"] else 0,
        module__n_features=n_features,
        module__n_latent=settings["n_components"],
        module__likelihood=likelihood,
        module__prior=make_prior(settings, settings["n_components"]),
        module__divergence=None if settings["divergence"] is None else _divergence(settings, expected),
        module__alpha=0.0 if settings["alpha"] is None else settings["alpha"],
        module__beta=settings["beta"],
        module__n_labels=n_labels,
        module__n_monte_carlo=settings["n_monte_carlo"],
        module__image_shape=settings["image_shape"],
    )


def check_network(settings, n_features, n_labels, exact):
    """Refuse, before anything is charged, what cannot be trained privately, or at all.

    Parameters
    ----------
    settings : dict
    n_features, n_labels : int
    exact : bool
        Whether they are those of the fit; if not, of modules of the user's own the kinds of the layers alone are
        checked.

    Raises
    ------
    ValueError
        For what is no DPNet, BatchNorm, LBFGS, modules of other shapes, a device that is not there; a prior of another
        dimension; a divergence that is not one finite number, or that reaches other groups.
    """
    import numpy as np
    import torch

    from ..dpsgd import check_module, check_optimizer
    from ..nn import PriVAEModule
    from ..nn._divergences import check_divergence
    from ..nn._dp_net import check_template
    from ..nn._priors import check_prior

    check_template(settings["net"])
    try:
        torch.zeros(1, device=settings["device"])
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device={settings['device']!r} cannot be used: {str(error).splitlines()[0]}") from None
    check_prior(make_prior(settings, settings["n_components"]), settings["n_components"])
    if settings["divergence"] is not None:
        check_divergence(_divergence(settings), settings["n_components"])
    net = make_net(settings, n_features, n_labels, make_likelihood("gaussian"))
    check_optimizer(net.optimizer)
    net.initialize()
    if not isinstance(net.module_, PriVAEModule):
        raise ValueError(f"the net's module must be a PriVAEModule; got {type(net.module_).__name__}")
    check_module(net.module_)
    if exact or net.module_.architecture is not None:  # nets that are made for any number of columns
        try:
            net.check(np.zeros((4, n_features + n_labels), np.float32), groups=settings["divergence"] is not None)
        except RuntimeError as error:  # shapes that do not fit one another
            raise ValueError(
                f"the network does not fit {settings['n_components']} latents and {n_features} columns: {error}"
            ) from None


def training_plan(settings, plan, row_count, neighboring):
    """The DP-SGD plan of a charged fit; its denominators are public or released.

    Parameters
    ----------
    settings : dict
    plan : FitPlan
    row_count : float
        Public or released.
    neighboring : str

    Returns
    -------
    DPSGDPlan, bool
        The flag tells whether a group may be expected to have as many records as the divergence needs.
    """
    from ..dpsgd import DPSGDPlan, TermwisePlan, WholeBatchPlan

    expected = max(1.0, settings["sampling_rate"] * row_count)
    shared = {
        "sampling_rate": settings["sampling_rate"],
        "steps": settings["steps"],
        "noise_multiplier": plan.noise_multipliers["training"],
        "neighboring": neighboring,
    }
    if settings["divergence"] is None:
        return DPSGDPlan(l2_bound=settings["l2_bound_sample"], expected_batch_size=expected, **shared), True
    n_groups = _n_groups(settings, expected)
    floor = float(n_groups * _smallest(settings))
    enough, shared["expected_batch_size"] = expected >= floor, max(expected, floor)
    if settings["aggregation"] == "termwise":
        bounds = {"sample_bound": settings["l2_bound_sample"], "group_bound": settings["l2_bound_group"]}
        if bounds["group_bound"] is None:  # 2 C2/b is this share of C1/B + 2 C2/b
            weight = _GROUP_SHARE / (1 - _GROUP_SHARE)
            bounds["group_bound"] = weight * bounds["sample_bound"] * n_groups / (2 * shared["expected_batch_size"])
        return TermwisePlan(**bounds, n_groups=n_groups, **shared), enough
    return WholeBatchPlan(
        gradient_bound=settings["l2_bound_sample"], aggregation=settings["aggregation"], **shared
    ), enough
