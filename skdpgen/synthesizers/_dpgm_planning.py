"""What DP-GM releases in a fit, and what it refuses before: functions of public parameters alone."""

from __future__ import annotations

from ..accounting import Phase
from ..exceptions import InvalidInputError
from ._privae_planning import make_likelihood

__all__ = ["check_network", "make_net", "plan_phases", "training_plan"]

# Share of the budget for the counts of clusters and classes: denominators, and what `sample` draws.
_COUNT_SHARE = 0.02
# Of the default net, as DP-VAE's.
_LEARNING_RATE, _AVERAGE = 5e-3, 0.99


def plan_phases(rows, settings):
    """Return the phases of a fit, in the order of their releases.

    Parameters
    ----------
    rows : ArrayRows or FrameRows
        Only what is public of them: which facts were declared.
    settings : dict

    Raises
    ------
    ValueError
        Shares that leave nothing to the training.
    """
    learned = list(rows.phases(settings["bounds_share"]))
    if settings["n_clusters"] > 1:
        learned.append(Phase("clusters", settings["clusters_share"], steps=settings["cluster_steps"]))
    # under replace_one too: the sizes of the clusters are private where the number of rows is not
    learned.append(Phase("counts", _COUNT_SHARE))
    rest = 1 - sum(phase.share for phase in learned)
    if rest <= 0:
        raise ValueError(
            f"bounds_share={settings['bounds_share']} and clusters_share={settings['clusters_share']} leave nothing "
            "to the training"
        )
    # one phase for the models of all clusters: see `PartedPlan`
    return [*learned, Phase("training", rest, steps=settings["steps"], sampling_rate=settings["sampling_rate"])]


def make_net(settings, n_parts, n_features, n_labels, likelihood, *, plan=None, scales=(), progress_text=""):
    """The net of the settings, or the default.

    Parameters
    ----------
    settings : dict
    n_parts, n_features, n_labels : int
    likelihood : module
    plan : PartedPlan, default=None
    scales : sequence of float, default=()
        Of the gradients of each part, after their release.
    progress_text : str
    """
    from sklearn.base import clone

    from ..nn import DPNet, ParameterAverage, PartitionedVAEModule, ScaledParts

    default = DPNet(PartitionedVAEModule, lr=_LEARNING_RATE, callbacks=[("average", ParameterAverage(_AVERAGE))])
    net = default if settings["net"] is None else clone(settings["net"])
    own = net.callbacks if isinstance(net.callbacks, list | tuple) else []
    # by itself: skorch's set_params fails where there were none
    net.callbacks = [("scaled_parts", ScaledParts(scales)), *own]
    return net.set_params(
        plan=plan,
        noise=settings["noise"],
        device=settings["device"],
        random_state=settings["seed"],
        progress_text=progress_text,
        verbose=2 if settings["progress"] else 0,
        module__n_parts=n_parts,
        module__n_features=n_features,
        module__n_latent=settings["n_components"],
        module__likelihood=likelihood,
        module__beta=settings["beta"],
        module__n_labels=n_labels,
        module__n_monte_carlo=settings["n_monte_carlo"],
        module__image_shape=settings["image_shape"],
    )


def check_network(settings, rows):
    """Refuse, before anything is charged, what cannot be trained privately, or at all.

    Parameters
    ----------
    settings : dict
    rows : ArrayRows or FrameRows
        Only what is public of them.

    Raises
    ------
    ValueError, InvalidInputError
        For what is no DPNet of a `PartitionedVAEModule`, BatchNorm, LBFGS, modules of other shapes, a device that is
        not there.
    """
    import numpy as np
    import torch

    from ..dpsgd import check_module, check_optimizer
    from ..nn import PartitionedVAEModule
    from ..nn._dp_net import check_template

    check_template(settings["net"])
    try:
        torch.zeros(1, device=settings["device"])
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device={settings['device']!r} cannot be used: {str(error).splitlines()[0]}") from None
    exact = not hasattr(rows, "schema")  # levels of a table are not known yet
    if exact:
        classes = rows.labels is not None and not rows.numeric_target
        n_features, n_labels = rows.X.shape[1], len(rows.labels.classes or (0, 1)) if classes else 0
    else:
        n_features, n_labels = 2 * len(rows.schema), 2 if rows.target is not None else 0
    # two autoencoders tell as much as all of them
    net = make_net(settings, 2, n_features, n_labels, make_likelihood("gaussian"))
    check_optimizer(net.optimizer)
    net.initialize()
    if not isinstance(net.module_, PartitionedVAEModule):
        raise InvalidInputError(f"the net's module must be a PartitionedVAEModule; got {type(net.module_).__name__}")
    check_module(net.module_)
    if exact or net.module_.parts[0].architecture is not None:  # nets that are made for any number of columns
        try:
            net.check(np.zeros((4, n_features + n_labels + 1), np.float32))
        except RuntimeError as error:  # shapes that do not fit one another
            raise ValueError(
                f"the network does not fit {settings['n_components']} latents and {n_features} columns: {error}"
            ) from None


def training_plan(settings, plan, row_count, cluster_sizes, neighboring):
    """The DP-SGD plan of a charged fit, for the models of all clusters; its denominators are public or released.

    Parameters
    ----------
    settings : dict
    plan : FitPlan
    row_count : float
        Public or released.
    cluster_sizes : array of shape (n_clusters,)
        Released.
    neighboring : str

    Returns
    -------
    PartedPlan
        One sampling rate and one number of steps for all clusters, and for all sizes that they may have.
    """
    from ..dpsgd import PartedPlan

    rate = settings["sampling_rate"]
    return PartedPlan(
        sampling_rate=rate,
        steps=settings["steps"],
        l2_bound=settings["l2_bound_sample"],
        noise_multiplier=plan.noise_multipliers["training"],
        expected_batch_size=max(1.0, rate * row_count),
        neighboring=neighboring,
        part_batch_sizes=tuple(max(1.0, rate * float(size)) for size in cluster_sizes),
    )
