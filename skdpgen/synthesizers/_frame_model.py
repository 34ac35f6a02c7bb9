"""Models of DataFrames from released moments: the releases, prior and decoder fitted to them, the released model."""

from __future__ import annotations

import functools
import math

import numpy as np

from .._types import BoundedSum, unit_of
from ..data.labels import one_column
from ..data.level_groups import noise_with_levels
from ..data.scores import Scores
from ..data.table_plan import plan_tables
from ..generators.components import spread_components
from ..generators.conditioning import FramesChecked, FramesGiven, RowsOfClasses
from ..generators.product_mixture import TableModel, consistent_marginals, fit_tables
from ..generators.refined_table import RefinedTable
from ..generators.scores import ScoreModel, fit_scores
from ..generators.target_model import TargetModel, covered_classes
from ..generators.target_step import gradient_noise, hides_target, initial_step, ratio_of_classes
from ..generators.triples import quarters_of_levels, released_triples
from ..generators.units import UnitModel, UnitSampler
from ..mechanisms import (
    add_gaussian,
    mean_of_releases,
    noise_of_mean,
    triple_bounds,
    unpack_moments,
    unpack_one_hot_moments,
)
from ..mechanisms._gaussian import Count, upper_bound
from ..mechanisms._moments import CLASS_COUNT_WEIGHT
from ..mixture import GaussianMixtureParameters
from ..utils.blocks import mapped_rows
from ..utils.callers import warn_user
from ..utils.file_checks import check_mixture
from ..utils.printing import listed
from ..utils.progress import progress_bar
from ._count_errors import RESPENT
from ._released import NetGenerator, ReleasedModel
from ._synthetic_units import release_pairs, release_units

# Triples, over all classes, above which their interactions take too much memory.
_MOST_TRIPLES = 1 << 17
# Standard deviations of a sum of products of halves by which all rows of a class must exceed the noise.
_VISIBLE = 5.0
# Synthetic rows to which the model of the target is fitted.
_SYNTHETIC_ROWS = 20_000
# Latent dimensions of a table with n_components="auto"; Moment draws rows without them where it has all tables.
_MOST_COMPONENTS = 30
# Largest ratio of `ClassContrasts` that a model file may state.
_LARGEST_RATIO = 1e6


class FrameModel(ReleasedModel):
    """Released state of P3GM and Moment on DataFrames.

    `latent_model`: latent space, decoder, and the prior of a model without mixture and network.
    `mixture`: prior by DP-EM in the latent space.
    `net`: decoder trained by DP-SGD.
    `units`: of the columns and the numbers of rows of units of several rows.
    `respent`: releases that the fit did not make, by which it released the moments again; it follows from other
        releases.
    `target_model`: by which the target is drawn given the other columns.
    `seen`: smallest correlation that the noise would not hide when the tables were planned (see `plan_bins`): with the
        codec, it says which tables were released. None without two-way tables; NaN of a file of an earlier version,
        which does not say it.
    `ratio`: that of `ClassContrasts` by which two-way tables were measured.
    `most`: upper bound of the sum of the weights of the rows (see `Count`), for the training of a network alone: no
        file has it.
    """

    def __init__(
        self, codec, latent_model, row_count, mixture=None, net=None, units=None, respent=(), target_model=None,
        seen=math.nan, ratio=1.0, most=0.0,
    ):  # fmt: skip
        self.respent, self.target_model = tuple(respent), target_model
        self.seen, self.ratio = seen, ratio
        self.codec, self.latent_model, self.row_count = codec, latent_model, row_count
        self.mixture, self.net, self.units, self.most = mixture, net, units, most

    @property
    def n_latent(self):
        """Number of latent dimensions."""
        return len(self.latent_model.components)

    @property
    def counted(self):
        """Released sum of the weights of the rows: a Count."""
        return Count(float(self.latent_model.class_counts.sum()), self.most)

    @property
    def component_weights(self):
        """Shares of the classes, or of the Gaussians of a mixture."""
        return self.latent_model.class_counts if self.mixture is None else self.mixture.weights

    @property
    def gradient_noise(self):
        """Source of the noise of DP-SGD and whether it was private, where there was any."""
        return getattr(self.latent_model if self.net is None else self.net, "noise", None)

    @property
    def decoder_name(self):
        """How rows are computed from latents: "released" or "net", as `decoder` of P3GM."""
        return "net" if self.net is not None or isinstance(self.latent_model, RefinedTable) else "released"

    @property
    def class_ratio(self):
        """Released share of each class."""
        counts = self.latent_model.class_counts
        return counts / max(counts.sum(), 1e-12)

    def given(self, given):
        """The model of rows that have some of their columns as asked for (see `read_evidence`)."""
        alone = self.mixture is None and self.net is None
        return FramesGiven(self, given) if alone else FramesChecked(self, given)

    def try_units(self, n_units, rng):
        """One row of each of some synthetic units, for the check of a file."""
        return UnitSampler(self, []).sample(n_units, rng, most_rows=1)[0]

    def sample(self, components, rng):
        """Rows, or (rows, y), of given components."""
        if self.target_model is None:
            return super().sample(components, rng)
        rows = self._rows_of_classes(lambda classes: self.draw(classes, rng))
        return self.codec.complete(rows.sample(components, rng), rng)

    def _rows_of_classes(self, codes_of):
        """Rows whose target the model of the target draws; `codes_of` gives level codes of rows of the table model."""

        def draw(classes, rng):
            return self.codec.decode_seen(codes_of(classes), classes, rng)

        return RowsOfClasses(self.target_model, self.codec, draw, self.latent_model.class_counts)

    def draw(self, components, rng):
        """Level codes of rows of given components, shape (n_samples, n_blocks)."""
        if self.net is not None:
            return self._draw_present(self.net.sample(components, rng), rng)
        if self.mixture is None:
            return self.latent_model.sample(components, rng)
        counts = np.bincount(components, minlength=self.mixture.n_components)
        latent = np.empty((len(components), self.n_latent))
        latent[np.argsort(components, kind="stable")] = self.mixture.sample(len(components), rng, counts=counts)[0]
        return self._draw_present(self.latent_model.decode(latent), rng)

    def _draw_present(self, probabilities, rng):
        # a network does not know which levels are absent
        return self.draw_levels(probabilities * self.latent_model.present, rng)

    def encode(self, frame):
        """Latent of rows, in blocks of one shape (see `map_blocks`)."""
        codes = self.codes_like_fit(frame)[0]
        return mapped_rows(lambda rows: self.latent_model.encode(self.codec.one_hot(rows)), codes, self.n_latent)

    def decode(self, latent, rng):
        """Rows from latents; the target is drawn by its released shares."""
        decoder = self.latent_model if self.net is None else self.net
        codes = self._draw_present(decoder.decode(latent), rng)
        classes = spread_components(len(latent), self.class_ratio, rng) if self.codec.n_classes else None
        if self.target_model is None:
            return self.rows_of(codes, classes, rng)
        frame = self._rows_of_classes(lambda classes: codes).relabelled(classes, rng)
        decoded = self.codec.complete(frame, rng)
        return decoded[0] if isinstance(decoded, tuple) else decoded

    def score_samples(self, frame, y=None):
        """Log-likelihood of each row (ELBO with a network)."""
        latent = self.latent_model
        codes, classes = self.codes_like_fit(frame, y)
        if self.net is not None:
            return self.net.elbo(self.codec.one_hot(codes), classes)
        if self.mixture is not None:
            return self.mixture.log_prob(latent.encode(self.codec.one_hot(codes)))
        if self.codec.n_classes and (classes is None or self.target_model is not None):
            scores = [latent.score_samples(codes, np.full(len(codes), k)) for k in range(self.codec.n_classes)]
            if classes is None:
                return np.logaddexp.reduce(scores, axis=0)
            return self._scores_with_target(np.array(scores), classes, frame, y)
        return latent.score_samples(codes, np.zeros(len(codes), dtype=np.int64) if classes is None else classes)

    def _scores_with_target(self, scores, classes, frame, y):
        """Log-likelihood of rows from that with each class under the table model, shape (n_classes, n_rows)."""
        last = self.codec.drawn_schema.names[-1]
        if y is not None and last not in frame.columns:
            frame = frame.copy(deep=False)
            frame[last] = np.asarray(one_column(y))
        covered = self.target_model.classes
        inside = np.logaddexp.reduce(scores[covered], axis=0)
        own = scores[classes, np.arange(len(classes))]
        values, _ = self.codec.seen_values(self.codec.seen(frame))
        return np.where(np.isin(classes, covered), inside + self.target_model.log_probability(values, classes), own)

    def to_state(self):
        """Return plain values and arrays for a release file."""
        mixture = self.mixture
        return {
            "kind": self.kind,
            "codec": self.codec.to_state(),
            "particles": self.latent_model.to_state(),
            "row_count": self.row_count,
            "mixture": None
            if mixture is None
            else {
                "weights": mixture.weights,
                "means": mixture.means,
                "covariances": mixture.covariances,
                "covariance_type": mixture.covariance_type,
            },
            "net": None if self.net is None else self.net.to_state(),
            **({} if self.units is None else {"units": self.units.to_state()}),
            **({"respent": list(self.respent)} if self.respent else {}),
            **({} if self.target_model is None else {"target_model": self.target_model.to_state()}),
            **({} if self.seen is not None and math.isnan(self.seen) else {"seen": self.seen}),
            **({} if self.ratio == 1 else {"ratio": self.ratio}),
        }

    @classmethod
    def _restore(cls, codec, state):
        mixture = state["mixture"] and check_mixture(GaussianMixtureParameters(**state["mixture"]))
        net = None if state["net"] is None else NetGenerator.from_state(state["net"])
        kinds = {"scores": ScoreModel, "layers": RefinedTable}
        kind = next((kinds[name] for name in kinds if name in state["particles"]), TableModel)
        units = None if state.get("units") is None else UnitModel.from_state(state["units"], codec)
        respent = state.get("respent", ())
        if not (isinstance(respent, list | tuple) and set(respent) <= set(RESPENT) and len(respent) <= len(RESPENT)):
            raise ValueError("the model file names releases that no fit spends on the moments")
        latent, target_model = kind.from_state(state["particles"]), state.get("target_model")
        if target_model is not None:
            if not (codec.targets and mixture is None and net is None and units is None):
                raise ValueError("the model file has a model of the target, which this kind of model does not have")
            target_model = TargetModel.from_state(target_model, codec.is_number, codec.n_levels, codec.n_classes)
        planned = {"seen": _seen_of(state), "ratio": _ratio_of(state, codec)}
        return cls(codec, latent, state["row_count"], mixture, net, units, respent, target_model, **planned)


def _seen_of(state):
    """The entry `seen` of a model file, if there is one."""
    seen = state.get("seen", math.nan)
    if seen is None or "seen" not in state:
        return seen
    if isinstance(seen, bool) or not isinstance(seen, int | float) or not 0 < seen < math.inf:
        raise ValueError("the model file holds no correlation that the noise would not hide")
    return float(seen)


def _ratio_of(state, codec):
    """The entry `ratio` of a model file; 1 if there is none."""
    ratio = state.get("ratio", 1.0)
    if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 1 <= ratio <= _LARGEST_RATIO:
        raise ValueError("the model file holds no weight of the tables of all classes")
    if ratio > 1 and not codec.n_classes > 1:
        raise ValueError("the model file holds a weight of the tables of all classes, and there is one class")
    return float(ratio)


def fit_frame_model(rows, model, fit):
    """Make the releases of DataFrames: facts that were not declared, then tables or scores; fit a model to them.

    Returns FrameModel: without the mixture and the network of P3GM.
    """
    noise, rng, neighboring = fit.noise, fit.rng, fit.neighboring
    options = {"tables": True, "scores": model.moments_alone}
    codec, seen, unspent, middles, n_rows = rows.learn(noise, fit.plan.extra_delta, rng, neighboring, **options)
    noise = noise_with_levels(noise, codec.encoder.groups_)
    scores = Scores.of_codec(codec, rows.importance_of(codec)) if seen is None else None
    seen = np.inf if seen is None and scores is None else seen  # too many scores: one-way tables
    ratio = ratio_of_classes(noise, n_rows, neighboring)
    plan = plan_tables(codec, seen, rows.importance_of(codec), middles, ratio) if scores is None else None
    tables = rows.moments(codec, plan) if scores is None else rows.score_moments(codec, scores)
    noise_multiplier, triples = noise["moments"], None
    packed = add_gaussian(tables, noise_multiplier, rng, neighboring)
    if "triples" in noise:
        if scores is None and plan.pairs:
            sd = plan.noise_sd(noise_multiplier * tables.sensitivity(neighboring))
            triples = release_triples(rows, codec, unpack_one_hot_moments(packed, plan), sd, plan.contrasts, fit)
        unspent = unspent if triples is not None else (*unspent, "triples")
    if "target" in noise:
        counts = _class_counts(packed, noise_multiplier * tables.sensitivity(neighboring), plan, scores, codec)
        unspent = (
            (*unspent, "target") if hides_target(counts, gradient_noise(noise["target"], neighboring)) else unspent
        )
    for label in unspent:  # its share of the budget buys the moments again
        both = noise_multiplier, noise[label]
        packed = mean_of_releases(packed, add_gaussian(tables, both[1], rng, neighboring), both)
        noise_multiplier = noise_of_mean(both)
    scale = noise_multiplier * tables.sensitivity(neighboring)
    if scores is None:
        counts, sd = packed[:, 0], plan.noise_sd(scale).count[0]
        latent_model = _fit_to_tables(packed, scale, plan, triples, codec, model, fit)
    else:
        released = unpack_moments(packed, scores.matrix.shape[1], scores.l2_bound)
        counts, sd = released.count, scale / CLASS_COUNT_WEIGHT
        latent_model = fit_scores(released, scale, scores, fit.stream, **_options(codec, model))
    _warn_of_what_is_lost(codec, latent_model, rows.unlearned, pairs=scores is not None or np.isfinite(seen))
    row_count = fit.sample_size(rows, latent_model.class_counts.sum())
    units = None if model.units is None else release_units(rows, codec, model.units, fit)
    measured = 1.0 if plan is None else plan.classes.ratio
    shown = float(seen) if scores is None and np.isfinite(seen) else None
    fitted = FrameModel(codec, latent_model, row_count, units=units, respent=unspent, seen=shown, ratio=measured)
    fitted.most = upper_bound(counts, sd)
    if "unit_pairs" in noise:
        fitted.units = release_pairs(rows, fitted, model.units.shared, fit)
    if "target" in noise and "target" not in unspent:
        fitted.target_model = release_target_model(rows, fitted, fit)
    return fitted


def release_target_model(rows, fitted, fit):
    """Fit a model of the target to synthetic rows, release one gradient of its log-likelihood, and correct it.

    Returns None, with a warning, where the noise hides all classes but one.
    """
    codec, noise, stream = fitted.codec, fit.noise["target"], fit.stream
    covered = covered_classes(fitted.class_ratio)
    classes = spread_components(_SYNTHETIC_ROWS, fitted.class_ratio, stream)
    synthetic = codec.decode_seen(fitted.draw(classes, stream), classes, stream)
    values, _ = codec.seen_values(synthetic)
    counts = fitted.latent_model.class_counts[covered]
    row_count = max(float(counts.sum()), 1.0)
    noise_of_row = gradient_noise(noise, fit.neighboring) / row_count
    step = initial_step(values, classes, covered, codec.is_number, codec.n_levels, noise_of_row)
    query = rows.target_gradients(codec, step)
    gradient = step.bound * add_gaussian(query, noise, fit.rng, fit.neighboring)
    if len(covered) < 2:  # the gradient is 0, and is released since it was charged
        warn_user(
            f"the noise hides all classes of {codec.target!r} but one: there is no model of the target, and the share "
            'of "target" in budget_split is lost'
        )
        return None
    sd = step.bound * noise * query.sensitivity(fit.neighboring)
    model = step.corrected(gradient, sd, row_count)
    return model.with_shares(values[np.isin(classes, covered)], counts / counts.sum())


def _class_counts(packed, scale, plan, scores, codec):
    """Released row counts of the classes, from moments whose weighted noise has a standard deviation of `scale`."""
    if scores is not None:
        return np.maximum(unpack_moments(packed, scores.matrix.shape[1], scores.l2_bound).count, 0.0)
    released, sd = unpack_one_hot_moments(packed, plan), plan.noise_sd(scale)
    return consistent_marginals(released, sd, plan.contrasts, codec.optional_levels)[0]


def release_triples(rows, codec, released, sd, contrasts, fit):
    """Release the interactions of all triples of columns; None where the noise would hide any of them.

    `released`, `sd`: the tables of the first release and their noise: columns are divided into quarters by them.
    Where it returns None, the share of this release is still to be spent.
    """
    counts, marginals, _ = consistent_marginals(released, sd, contrasts, codec.optional_levels)
    quarters = quarters_of_levels(counts @ marginals, codec.n_levels)
    noise_multiplier, n_triples = fit.noise["triples"], math.comb(len(quarters.columns), 3)
    unit = unit_of(fit.neighboring)
    weighted = unit is not None and unit.weighting == "units"
    bounds = BoundedSum(0.0, *triple_bounds(quarters.fine), weighted=weighted)
    noise = noise_multiplier * bounds.sensitivity(fit.neighboring)
    if not 0 < n_triples * len(counts) <= _MOST_TRIPLES or counts.max() < _VISIBLE * noise:
        return None
    query = rows.triples(codec, quarters)
    noisy = add_gaussian(query, noise_multiplier, fit.rng, fit.neighboring)
    return released_triples(noisy, noise / query.weights, quarters, codec.n_levels)


def _fit_to_tables(packed, scale, plan, triples, codec, model, fit):
    """Prior and decoder from released tables whose weighted noise has a standard deviation of `scale`."""
    bar = functools.partial(progress_bar, phase="prior and decoder", shown=True) if model.progress else None
    return fit_tables(
        unpack_one_hot_moments(packed, plan),
        plan.noise_sd(scale),
        plan.contrasts,
        fit.stream,
        classes=plan.classes,
        progress=bar,
        triples=triples,
        sides=plan.sides,
        **_options(codec, model),
    )


def _options(codec, model):
    """What fits to tables and to scores have in common."""
    wanted = {"auto": _MOST_COMPONENTS, None: int(codec.n_levels.sum())}
    return {
        "optional": codec.optional_levels,
        "undrawn": codec.undrawn_levels,
        "n_components": wanted.get(model.n_components, model.n_components),
    }


def _warn_of_what_is_lost(codec, latent_model, unlearned, pairs):
    """Warn, by released values alone, of what is lost in the noise."""
    also = None
    if not pairs and len(codec.n_levels) > 1 and unlearned.expects_relations:
        few = "the noise also hides" if unlearned else "too few rows for this noise to estimate"
        within = " within a class" if codec.n_classes else ""
        if latent_model.points.shape[2] == 1:  # one support point a class
            also = f"{few} how columns depend on one another: they are modelled as independent{within}"
        else:
            also = (
                f"{few} two-way tables. Numbers, dates and columns of two categories depend on one another as normal "
                "variables do, as strongly as one noisy correlation of each pair shows; columns of more categories are "
                f"modelled as independent{within}"
            )
    unlearned.warn(also)
    if codec.n_classes:
        gone = (latent_model.class_counts == 0) & ~codec.optional_classes
        if gone.any():
            named = listed([name for name, lost in zip(codec.classes, gone) if lost], 5)
            warn_user(
                f"the noise hides the classes {named} of {codec.target!r}: the model treats them as absent. "
                "Only a sample in which y or class_ratio names them has rows of them, which are mostly noise"
            )
