"""Before the training of a network: the budget of the facts it needs, their release, and the rows as it takes them."""

from __future__ import annotations

import numpy as np

from ..accounting import Phase
from ..data.frames import FrameRows
from ..mechanisms import add_gaussian, histogram
from ._phases import COUNT_SHARE, remaining_share

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
    Returns an array of shape (n_classes,), or (1,) without classes.
    """
    if "counts" not in fit.noise:
        return np.ones(1)
    cells = np.zeros(n_rows, dtype=np.int64) if classes is None else classes
    counts = histogram(cells, max(codec.n_classes, 1), unit_sizes)
    return add_gaussian(counts, fit.noise["counts"], fit.rng, fit.neighboring)


def sizes_by_counts(counts, rows, fit, moments=None):
    """Numbers that follow from the released counts of the classes.

    Returns `row_count`: released number of rows, or the public one; that of `moments` where they have it; `weights`
    (n_classes,): of the classes in a sample: see `positive_counts`; `step_size`: rows, or units where each counts 1, of
    which `sampling_rate` draws a step.
    """
    counted = max(1.0, float(counts.sum()))
    if moments is not None and "row_count" in fit.plan.noise_multipliers:  # released once, with the moments
        row_count = moments.row_count
    else:
        row_count = fit.sample_size(rows, counted)
    return row_count, positive_counts(counts), fit.step_size(row_count, counted)


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
