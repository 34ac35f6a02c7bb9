"""The fit that synthesizers with critics on disjoint subsets share: settings, and all their releases."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np

from ..data.validation import read_vectors
from ..utils.validation import MOST_UNITS, Interval, as_sizes, check_model_size
from ._base import BaseSynthesizer
from ._generator_model import (
    FREQUENCIES,
    GENERATOR_CONSTRAINTS,
    CoordinateSettings,
    GeneratorModel,
    learn_rows,
    n_weights,
)
from ._training import network_shape

# Generated rows in a step: the memory of a step grows with them.
_MOST_GENERATED = 2**14
# Of the one-hot class that critics see beside a row.
_LABEL_SCALE = 10.0


def critic_constraints(critics):
    """Constraints of the parameters that all of them have; `critics` is "critic" or "teacher", in their names."""
    return {
        **GENERATOR_CONSTRAINTS,
        "steps": [Interval(Integral, 1, None, closed="left")],
        "generated_rows": [Interval(Integral, 1, _MOST_GENERATED, closed="both")],
        "n_components": [Interval(Integral, 1, MOST_UNITS, closed="both")],
        "warm_start_steps": [Interval(Integral, 0, None, closed="left")],
        "batch_size": [Interval(Integral, 1, MOST_UNITS, closed="both")],
        "gradient_penalty": [Interval(Real, 0, 1e6, closed="both")],
        f"n_{critics}s": [Interval(Integral, 1, MOST_UNITS, closed="both")],
        f"{critics}_sizes": ["array-like"],
        f"{critics}_steps": [Interval(Integral, 0, None, closed="left")],
        f"{critics}_learning_rate": [Interval(Real, 1e-12, 1, closed="both")],
    }


# ---- settings -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class CriticReleases:
    """The steps: how many critics there are, and what is released of them.

    A subclass has a method ``votes(seed)``, which returns what is summed: see `ClippedGradients` in `nn._critics`.
    """

    n_critics: int
    critics_per_step: int
    steps: int
    generated_rows: int

    def plan(self, noise_multiplier=0.0, unit=None):
        """The plan of these steps at some noise, which protects a row or a `BoundedUnit`."""
        from ..dpsgd._subsets import SubsetPlan

        every = self.critics_per_step == self.n_critics
        return SubsetPlan(
            n_subsets=self.n_critics,
            steps=self.steps,
            noise_multiplier=noise_multiplier,
            per_step=self.critics_per_step,
            gradient_bound=self.bound(noise_multiplier),
            sampler="balanced" if every else "poisson",
            encoder_update="round_robin",  # critics learn whichever of them is drawn
            unit=unit,
        )

    def bound(self, noise_multiplier):
        """Half of the distance that one critic can move the sum of a step: that of its votes on all generated rows."""
        return self.votes().bound(self.generated_rows, noise_multiplier) / 2

    def phase(self, label, share):
        """The phase of the releases in a joint calibration."""
        return self.plan().phase(label, share)

    def check_size(self, n_at_once, n_columns):
        """Refuse what of some critics at once is too large for memory, beyond their gradients."""

    def fitted_to(self, n_columns):
        """These releases for gradients of a released number of columns."""
        return self


@dataclass(frozen=True, eq=False, kw_only=True)
class CriticSettings(CoordinateSettings):
    """The critics, the generator and the steps, which are `CriticReleases`."""

    critics: object  # CriticTraining
    prefix: str  # of the names of the parameters of critics: "critic" or "teacher"
    model: str  # name of the model


class BaseCriticSynthesizer(BaseSynthesizer):
    """Base of synthesizers whose generator learns from what is released of critics on disjoint subsets.

    A subclass has ``_settings()``, which calls `_shared_settings`.
    """

    _model_class = GeneratorModel

    def _shared_settings(self, training, prefix, model, loss):
        """The `CriticSettings` of parameters; ValueError for parameters that contradict one another.

        `prefix`: of the names of the parameters: "critic" or "teacher". `model`: its name.
        `loss`: see `CriticTraining`.
        """
        from ..nn._critics import CriticTraining

        if self.image_shape is not None and self.target is not None:
            raise ValueError("image_shape is for arrays, target for DataFrames")
        if getattr(self, f"{prefix}_steps") == 0 and self.warm_start_steps == 0:
            raise ValueError(
                f"{prefix}_steps=0 with warm_start_steps=0 lets no {prefix} learn: raise one of them; nothing was "
                "charged"
            )
        critics = CriticTraining(
            sizes=as_sizes(getattr(self, f"{prefix}_sizes"), f"{prefix}_sizes"),
            learning_rate=getattr(self, f"{prefix}_learning_rate"),
            penalty=self.gradient_penalty,
            batch_size=self.batch_size,
            steps=getattr(self, f"{prefix}_steps"),
            warm_start_steps=self.warm_start_steps,
            loss=loss,
        )
        return CriticSettings.of(
            self.get_params(deep=False),
            self._seed(),
            n_frequencies=FREQUENCIES,
            training=training,
            critics=critics,
            prefix=prefix,
            model=model,
        )

    def _prepare(self, X, y, accountant, groups=None):
        settings = self._settings()
        rows = read_vectors(self, X, y, groups)
        settings = settings.fitted_to(rows, self.n_frequencies)
        check_size(settings, rows)
        plan = self._plan_training(accountant, rows, settings, "gradients")
        settings.training.bound(plan.noise_multipliers["gradients"])  # refuses noise that is too large for it
        return (rows, settings), plan

    def _release(self, rows, settings, fit):
        return fit_critic_model(rows, settings, fit)


def check_size(settings, rows):
    """Refuse networks and steps too large for memory; by public numbers alone."""
    width, n_labels, _ = network_shape(rows)
    sizes = (settings.n_components + n_labels, *settings.hidden_layer_sizes, width)
    generator = n_weights(*sizes) + settings.training.generated_rows * width
    check_model_size(generator, n_components=settings.n_components, hidden_layer_sizes=sizes[1:-1])
    if settings.image_shape is not None:
        width = min(width, settings.n_frequencies**2 * (*settings.image_shape, 1)[2])
    critics, k = settings.critics, settings.training.n_critics
    sizes = (width + n_labels, *critics.sizes, 1)
    each = n_weights(*sizes) + sum(sizes[1:])  # with biases
    check_model_size(4 * k * each, **{f"n_{settings.prefix}s": k, f"{settings.prefix}_sizes": critics.sizes})
    points = 256 * max(settings.training.generated_rows, 4 * critics.batch_size) * (max(sizes) + width)
    check_model_size(points, generated_rows=settings.training.generated_rows, batch_size=critics.batch_size)
    settings.training.check_size(256, width)


# ---- the fit ------------------------------------------------------------------------------------------------------
def fit_critic_model(rows, settings, fit):
    """Make all releases: facts that were not declared, counts of the classes, and noisy sums over critics."""
    from ..nn._critics import train_by_critics

    codec, x, classes, n_levels, row_count, weights, _ = learn_rows(rows, fit)
    generator, coordinates = settings.make_generator(codec, x.shape[1], n_levels)
    training = settings.training.fitted_to(generator.n_outputs)
    plan = fit.cover(training.plan(fit.noise["gradients"], fit.plan.unit))
    noise = train_by_critics(
        generator,
        lambda points: _make_critics(x, classes, rows, points, settings, fit.rng),
        plan,
        fit.rng,
        weights,
        n_rows=training.generated_rows,
        votes=training.votes(settings.seed),
        **coordinates,
        label_scale=_LABEL_SCALE,
        learning_rate=settings.learning_rate,
        average=settings.average,
        seed=settings.seed,
        progress=settings.progress,
        progress_text=f"{settings.model} epsilon {fit.plan.epsilon:.3g}",
    )
    return GeneratorModel.of_coordinates(codec, generator, row_count, weights, coordinates, noise)


def _make_critics(x, classes, rows, points, settings, rng):
    """Critics of subsets that are drawn for each record, or for each unit with all its rows; private."""
    import torch

    from ..dpsgd._subsets import assign_subsets
    from ..nn._critics import Critics
    from ..nn._dp2vae_training import SubsetRows

    k, n_classes = settings.training.n_critics, points.generator.n_classes
    key = bytes(rng.random_bytes(16))  # before the subsets: a row that joins does not shift it
    subsets = assign_subsets(len(x), k, rng, units=rows.unit_codes)
    known = classes >= 0 if n_classes else np.ones(len(x), dtype=bool)  # a row of no released class is in no subset
    codes, counted = np.asarray(classes)[known], None if rows.unit_sizes is None else rows.unit_codes[known]
    encoded = points.encoded(torch.from_numpy(x[known]), torch.from_numpy(codes))
    n_columns = encoded.shape[1] - n_classes
    own = SubsetRows(encoded[:, :n_columns].numpy(), codes, n_classes, subsets[known], k, units=counted)
    return Critics(own, n_columns, points.label_scale, settings.critics, key, settings.seed)
