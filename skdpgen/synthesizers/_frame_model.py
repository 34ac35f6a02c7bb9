"""P3GM on DataFrames: release the tables, fit prior and decoder to them, and keep what sampling needs."""

from __future__ import annotations

import sys
import warnings

import numpy as np
from tqdm import tqdm

from .._types import BoundedSum
from ..data.frames import FrameCodec
from ..data.scores import Scores
from ..exceptions import UtilityWarning
from ..generators.components import spread_components
from ..generators.conditioning import FramesGiven
from ..generators.gaussians import LatentSpace
from ..generators.product_mixture import TableModel, fit_tables
from ..generators.scores import ScoreModel, fit_scores
from ..mechanisms import add_gaussian, unpack_moments, unpack_one_hot_moments
from ..mixture import GaussianMixtureParameters, dp_em, initial_mixture
from ..tabular import sample_levels
from ..utils.blocks import map_blocks
from ..utils.file_checks import check_mixture
from ._decoder import NetGenerator, decoder_plan, train_decoder

__all__ = ["FrameModel", "fit_frame_model"]

_MOST_COMPONENTS = 30
_WARM_ROWS = 20_000


class FrameModel:
    """Released state of P3GM on DataFrames.

    Parameters
    ----------
    codec : FrameCodec
    particles : TableModel or ScoreModel
        Latent space, decoder, and the prior of a model without mixture and network.
    row_count : float
    mixture : GaussianMixtureParameters or None
        Prior by DP-EM in the latent space.
    net : NetGenerator or None
        Decoder trained by DP-SGD.
    """

    kind = "frame"

    def __init__(self, codec, particles, row_count, mixture=None, net=None):
        self.codec, self.particles, self.row_count = codec, particles, row_count
        self.mixture, self.net = mixture, net

    @property
    def n_latent(self):
        """Number of latent dimensions."""
        return len(self.particles.components)

    @property
    def component_weights(self):
        """Shares of the classes, or of the Gaussians of a mixture."""
        return self.particles.class_counts if self.mixture is None else self.mixture.weights

    @property
    def gradient_noise(self):
        """Source of the noise of DP-SGD and whether it was private, where there was any."""
        return None if self.net is None else self.net.noise

    @property
    def class_ratio(self):
        """Released share of each class."""
        counts = self.particles.class_counts
        return counts / max(counts.sum(), 1e-12)

    def sample(self, components, rng):
        """A frame, or (frame, y), of rows of given components."""
        codes = self.codes(components, rng)
        return self.codec.decode(codes, components if self.codec.n_classes else None, rng)

    def given(self, given):
        """The model, conditioned on the values of some columns."""
        return FramesGiven(self, given)

    def codes(self, components, rng):
        """Level codes of rows of given components, shape (n_samples, n_blocks)."""
        if self.net is not None:
            return self._draw_levels(self.net.sample(components, rng), rng)
        if self.mixture is None:
            return self.particles.sample(components, rng)
        counts = np.bincount(components, minlength=self.mixture.n_components)
        latent = np.empty((len(components), self.n_latent))
        latent[np.argsort(components, kind="stable")] = self.mixture.sample(len(components), rng, counts=counts)[0]
        return self._draw_levels(self.particles.decode(latent), rng)

    def _draw_levels(self, probabilities, rng):
        # a network was never told which levels are absent
        blocks = np.split(probabilities * self.particles.present, self.particles.offsets[1:-1], axis=1)
        return np.stack([sample_levels(block, rng) for block in blocks], axis=1)

    def encode(self, frame):
        """Latent of rows."""
        return self.particles.encode(self.codec.one_hot(self._codes(frame)[0]))

    def decode(self, latent, rng):
        """Rows from latents; the target is drawn by its released shares."""
        decoder = self.particles if self.net is None else self.net
        codes = self._draw_levels(decoder.decode(latent), rng)
        classes = spread_components(len(latent), self.class_ratio, rng) if self.codec.n_classes else None
        decoded = self.codec.decode(codes, classes, rng)
        return decoded[0] if isinstance(decoded, tuple) else decoded

    def score_samples(self, frame, y=None):
        """Log-likelihood of each row (ELBO with a network)."""
        codes, classes = self._codes(frame, y)
        if self.net is not None:
            return self.net.elbo(self.codec.one_hot(codes), classes)
        if self.mixture is not None:
            return self.mixture.log_prob(self.particles.encode(self.codec.one_hot(codes)))
        if classes is None and self.codec.n_classes:
            scores = [self.particles.score_samples(codes, np.full(len(codes), k)) for k in range(self.codec.n_classes)]
            return np.logaddexp.reduce(scores, axis=0)
        return self.particles.score_samples(codes, np.zeros(len(codes), dtype=np.int64) if classes is None else classes)

    def _codes(self, frame, y=None):
        """Level and class codes of rows like those of `fit`; y may be left out where it came apart."""
        schema = self.codec.encoder.schema_
        missing = [name for name in schema.names if name not in frame.columns]
        if self.codec.y != "none" and missing == [schema.names[-1]]:
            column = schema[missing[0]]
            filler = column.values[0] if hasattr(column, "values") and column.values else column.bounds[0]
            codes, classes = self.codec.codes(frame.assign(**{missing[0]: filler if y is None else np.asarray(y)}))
            return codes, None if y is None else classes
        return self.codec.codes(frame)

    def to_state(self):
        """Return plain values and arrays for a release file."""
        mixture = self.mixture
        return {
            "kind": self.kind,
            "codec": self.codec.to_state(),
            "particles": self.particles.to_state(),
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
        }

    @classmethod
    def from_state(cls, state):
        """Rebuild from `to_state`."""
        mixture = state["mixture"] and check_mixture(GaussianMixtureParameters(**state["mixture"]))
        net = None if state["net"] is None else NetGenerator.from_state(state["net"])
        kind = ScoreModel if "scores" in state["particles"] else TableModel
        codec, particles = FrameCodec.from_state(state["codec"]), kind.from_state(state["particles"])
        return cls(codec, particles, state["row_count"], mixture, net)


def fit_frame_model(rows, settings, plan, rng, neighboring, stream):
    """Make all releases of the fit, after its charge.

    Parameters
    ----------
    rows : FrameRows
    settings, plan, rng, neighboring, stream
        As in `fit_array_model`.

    Returns
    -------
    FrameModel
    """
    noise = plan.noise_multipliers
    alone = settings["prior"] != "mixture" and settings["decoder"] == "released"
    codec, one_way_share = rows.learn(noise, plan.extra_delta, rng, neighboring, scores=alone)
    scores = Scores.of_codec(codec, rows.importance_of(codec)) if one_way_share == 0 else None
    wanted = {"auto": _MOST_COMPONENTS, None: int(codec.n_levels.sum())}
    options = {
        "optional": codec.optional_levels,
        "n_components": wanted.get(settings["n_components"], settings["n_components"]),
    }
    tables = rows.moments(codec, one_way_share or 1.0) if scores is None else rows.score_moments(codec, scores)
    released = unpack(add_gaussian(tables, noise["moments"], rng, neighboring), codec, scores)
    if scores is None:
        sd = unpack(_noise_sd(tables, noise["moments"], neighboring), codec)
        progress = _bar if settings["progress"] else None
        particles = fit_tables(released, sd, codec.n_levels, stream, progress=progress, **options)
    else:
        sd = noise["moments"] * tables.sensitivity(neighboring)
        particles = fit_scores(released, sd, scores, stream, **options)
    _warn_of_what_is_lost(codec, particles, pairs=scores is not None or one_way_share < 1)
    row_count = float(len(rows)) if neighboring == "replace_one" else float(particles.class_counts.sum())
    model = FrameModel(codec, particles, row_count)
    if settings["prior"] == "mixture":
        model.mixture = _release_mixture(rows, codec, particles, settings, noise, rng, neighboring, stream)
    if settings["decoder"] == "net":
        model.net = _train(rows, model, settings, plan, neighboring, stream)
    return model


def unpack(packed, codec, scores=None):
    """Give released sums, of tables or of scores, their shapes back."""
    if scores is None:
        return unpack_one_hot_moments(packed, codec.n_levels)
    return unpack_moments(packed, scores.matrix.shape[1], scores.l2_bound)


def _warn_of_what_is_lost(codec, particles, pairs):
    """Tell, from released values alone, what the noise left nothing of."""
    if not pairs and len(codec.n_levels) > 1:
        warnings.warn(
            "too few rows for the noise to tell what columns have to do with one another: they are modelled as "
            "independent" + (" within a class" if codec.n_classes else ""),
            UtilityWarning,
            stacklevel=2,
        )
    if codec.n_classes:
        gone = (particles.class_counts == 0) & ~codec.optional_classes
        if gone.any():
            names = [repr(name) for name, lost in zip(codec.classes, gone) if lost]
            told = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
            warnings.warn(
                f"too few rows for the noise in the classes {told} of {codec.target!r}: taken for absent, they are "
                "drawn only where asked for by name",
                UtilityWarning,
                stacklevel=2,
            )


def _bar(steps):
    return tqdm(
        steps,
        desc="fitting prior and decoder to the released tables",
        unit="step",
        file=sys.stderr,
        leave=False,
        disable=None,  # where stderr is no terminal
    )


def _noise_sd(tables: BoundedSum, noise_multiplier, neighboring):
    sd = noise_multiplier * tables.sensitivity(neighboring) / np.asarray(tables.weights)
    return np.broadcast_to(sd, (1, len(sd)))


def _latents(rows, codec, particles):
    codes = rows.codes(codec)
    latent = np.empty((len(codes), len(particles.components)))
    for part, encoded in map_blocks(lambda chunk: particles.encode(codec.one_hot(chunk)), codes):
        latent[part] = encoded
    return latent


def _release_mixture(rows, codec, particles, settings, noise, rng, neighboring, stream):
    """DP-EM in the latent space, whose columns have released variance 1: the ball of radius 2 sqrt(k) is public."""
    k = len(particles.components)
    kind = {"radius": 2 * k**0.5, "min_variance": 1e-2}
    start = initial_mixture(
        np.zeros(k), np.eye(k), settings["n_mixture"], stream, covariance_type=settings["covariance_type"], **kind
    )
    return dp_em(
        _latents(rows, codec, particles),
        start,
        n_iter=settings["em_steps"],
        noise_multiplier=noise["mixture"],
        rng=rng,
        neighboring=neighboring,
        **kind,
    )


def _train(rows, model, settings, plan, neighboring, stream):
    codec, particles, mixture = model.codec, model.particles, model.mixture
    components = spread_components(_WARM_ROWS, model.component_weights, stream)
    warm = codec.one_hot(model.codes(components, stream))
    if codec.n_classes:
        warm = np.concatenate([warm, np.eye(codec.n_classes, dtype=np.float32)[components]], axis=1)
    if mixture is None:
        weights = np.maximum(particles.class_counts, 1e-9)
        covariances = particles.class_covariances + 1e-3 * np.eye(model.n_latent)
        mixture = GaussianMixtureParameters(weights / weights.sum(), particles.class_means, covariances, "full")
    return train_decoder(
        rows.one_hot_with_labels(codec),
        decoder_plan(settings, plan, model.row_count, neighboring),
        LatentSpace(particles.mean, particles.components.T / particles.scale),
        mixture,
        settings=settings,
        likelihood="table",
        widths=codec.n_levels,
        n_labels=codec.n_classes,
        warm_rows=warm,
        progress_text=f"epsilon {plan.epsilon:.3g}",
    )
