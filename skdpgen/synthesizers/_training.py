"""How networks are trained: rate, steps and bound of DP-SGD; the template, device and seed of a net."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from sklearn.base import clone

from .._types import UnitRelation
from ..accounting import Phase
from ..data.frames import FrameRows
from ..mechanisms import add_gaussian, histogram
from ..mechanisms._gaussian import Count, upper_bound
from ..utils.progress import shows_bars
from ._phases import COUNT_SHARE, remaining_share


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


# ---- before the training: the budget of the facts, their release, the rows ------------------------------------------
# After a warm start on rows of released moments: the share of the moments, which remain most of the model.
_MOMENT_SHARE = 0.8


# ---- budget -------------------------------------------------------------------------------------------------------
def plan_phases(rows, settings, bounds_share, relation, label="training"):
    """Return the phases of a fit, in the order of their releases; between units the number of rows is private."""
    from_moments = getattr(settings, "start_steps", None) is not None
    learned, rest = plan_facts(rows, bounds_share, relation, from_moments)
    if from_moments:
        learned += rows.encoder_phases(_MOMENT_SHARE * rest, class_norms=rows.may_have_class_norms)
        rest *= 1 - _MOMENT_SHARE
    return [*learned, settings.training.phase(label, rest)]


def plan_facts(rows, bounds_share, relation, from_moments):
    """Return the phases of the facts that a training needs, and the share that they leave to what follows.

    With `from_moments`, the number of rows and the counts of the classes follow from the moments.
    """
    phases = list(rows.phases(bounds_share))
    if not from_moments and (relation != "replace_one" or has_classes(rows)):
        phases.append(Phase("counts", COUNT_SHARE))
    message = f'"bounds": {bounds_share:g} of budget_split leaves nothing to the training'
    return phases, remaining_share(phases, message)


def has_classes(rows):
    """Whether the model is conditional on classes; public."""
    if isinstance(rows, FrameRows):
        return rows.target is not None
    return rows.labels is not None and not rows.numeric_target


def network_shape(rows):
    """Columns and classes of the network, and whether they are known before levels are learned; public.

    Of tables with learned levels or bins they are the least that may be: the declared levels, and two for each other
    column.
    """
    if isinstance(rows, FrameRows):
        return *rows.least_levels, rows.levels_are_public
    return rows.X.shape[1], len(rows.labels.classes or (0, 1)) if has_classes(rows) else 0, True


# ---- releases -----------------------------------------------------------------------------------------------------
def learn_codec(rows, fit, **basis):
    """Release what was not declared of the rows; return the codec, of images in a `basis` of cosines."""
    found = rows.learn(fit.noise, fit.plan.extra_delta, fit.rng, fit.neighboring, **basis)
    return found.codec if isinstance(rows, FrameRows) else found


def release_class_counts(codec, n_rows, classes, fit, unit_sizes=None):
    """Release how many rows each class has, or how many rows there are; ones where the plan counts nothing.

    `n_rows`: private.
    `classes` (n_rows,): codes of the classes; private.
    `unit_sizes` (n_rows,): where units count 1, the number of rows used of the unit of each row; a row then counts
        about one over it.
    Returns ClassCounts: of shape (1,) without classes.
    """
    if "counts" not in fit.noise:
        return ClassCounts(np.ones(1), 0.0)
    cells = np.zeros(n_rows, dtype=np.int64) if classes is None else classes
    counts, noise = histogram(cells, max(codec.n_classes, 1), unit_sizes), fit.noise["counts"]
    released = add_gaussian(counts, noise, fit.rng, fit.neighboring)
    return ClassCounts(released, noise * counts.sensitivity(fit.neighboring))


class ClassCounts(NamedTuple):
    """Released counts of the classes, and the standard deviation of the noise on each."""

    counts: np.ndarray  # (n_classes,)
    noise_sd: float

    @property
    def total(self):
        """The sum of the counts, at least 1."""
        return Count(max(1.0, float(self.counts.sum())), upper_bound(self.counts, self.noise_sd))

    def to_state(self):
        """Plain values for a checkpoint."""
        return self._asdict()

    @classmethod
    def from_state(cls, state):
        """Rebuild from `to_state`; checkpoints of earlier versions do not say how large the noise was."""
        return cls(state["counts"], float(state.get("noise_sd", 0.0)))


def sizes_by_counts(counts, rows, fit, moments=None):
    """Numbers that follow from the released counts of the classes, ClassCounts.

    Returns `row_count`: released number of rows, or the public one; that of `moments` where they have it; `weights`
    (n_classes,): of the classes in a sample: see `positive_counts`; `step_size`, a Count: rows, or units where each
    counts 1, of which `sampling_rate` draws a step.
    """
    counted = counts.total
    if moments is not None:  # from which the counts were computed
        counted = counted._replace(most=moments.counted.most)
    if moments is not None and "row_count" in fit.plan.noise_multipliers:  # released once, with the moments
        row_count = moments.row_count
    else:
        row_count = fit.sample_size(rows, counted.value)
    return row_count, positive_counts(counts.counts), fit.step_size(row_count, counted)


def positive_counts(counts, n_parts=1):
    """Released counts, none of them below a thousandth of all, in each of `n_parts`: noise may make them negative."""
    return np.maximum(counts, max(1e-3 * float(np.abs(counts).sum()) / n_parts, 1e-9))


# ---- rows as a network takes them ---------------------------------------------------------------------------------
def encode_rows(rows, codec, settings):
    """Encode the rows for a network.

    `codec`: released by `learn_codec`, now or before.
    `settings`: its `likelihood` may be "auto".
    Returns `x` (n_samples, n_features + n_classes); `classes` (n_samples,): negative for rows of no class;
        `likelihood`; `widths`: levels of each block of a table.
    """
    if isinstance(rows, FrameRows):
        return rows.one_hot_with_labels(codec), codec.codes(rows.frame)[1], "table", codec.n_levels
    likelihood = settings.likelihood
    if likelihood == "auto":
        likelihood = "bernoulli" if (codec.box[0] >= 0).all() else "gaussian"
    return rows.scaled_with_labels(codec), rows.codes, likelihood, None


def with_labels(x, classes, codec):
    """Rows as the network takes them: with the one-hot class at the end, where there are classes."""
    labels = classes[:, None] == np.arange(codec.n_classes)
    return np.concatenate([x, labels], axis=1, dtype=np.float32)


def counted_rows(rows, has_class, *arrays):
    """Rows that the released counts of the classes count, and their units: those of which a training takes steps.

    The counts say how many rows a step has. In an array, a row has no class if its class was not learned. Where each
    unit counts 1, a unit counts as its share of rows of a class, so that units with other rows are left out.

    `rows`: private. `has_class` (n_rows,): whether each has a class. *arrays: (n_rows, ...).
    Returns the arrays, and the unit of each row; None where a row is the unit.
    """
    units = rows.unit_codes
    if has_class.all():
        return *arrays, units
    if rows.unit_sizes is not None:
        has_class = np.bincount(units, ~has_class)[units] == 0
    return *(x[has_class] for x in arrays), None if units is None else units[has_class]


def have_class(x, n_classes):
    """Whether each row, with the one-hot class at the end, has a class; all have where there are no classes."""
    return x[:, len(x.T) - n_classes :].any(axis=1) if n_classes else np.ones(len(x), dtype=bool)
