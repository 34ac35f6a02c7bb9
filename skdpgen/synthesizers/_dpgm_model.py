"""DP-GM's released model: clusters by private k-means on random features, and an autoencoder for each of them."""

from __future__ import annotations

import warnings

import numpy as np

from ..data.frames import FrameRows
from ..exceptions import UtilityWarning
from ..generators.components import spread_components
from ..mechanisms import CLUSTER_COUNT_WEIGHT, add_gaussian, cluster_sums, histogram, nearest_centers
from ._dpgm_planning import make_net, training_plan
from ._merf_model import RandomFeatures
from ._privae_model import PriVAEModel, learn_rows
from ._privae_planning import make_likelihood

__all__ = ["DPGMModel", "find_centers", "fit_dpgm_model"]

# Seed of the frequencies: public, and the same in every fit, so that fits can be compared release by release.
_FREQUENCIES = 20171129
# Unit of the length scale: the root of the number of columns of a table; columns in the unit box differ by less.
_ARRAY_UNIT = 0.3
# Released rows of a cluster below which its sums are noise, in standard deviations of its count.
_SEEN = 3.0
# How far apart the halves of a cluster start, over the spread of its rows.
_APART = 0.1


class DPGMModel:
    """Released state of DP-GM: one variational autoencoder a cluster, and the sizes of the clusters.

    Parameters
    ----------
    parts : list of PriVAEModel
        With one codec; their `component_weights` are the released counts of the classes within the cluster.
    row_count : float

    Attributes
    ----------
    cluster_weights : array of shape (n_clusters,)
        Released shares of the clusters.
    component_weights : array of shape (n_components,)
        Released counts of the classes, where the model is conditional on them, else one.
    gradient_noise : (str, bool) or None
        Source of the noise of DP-SGD, in words, and whether it was private.
    """

    gradient_noise = None

    def __init__(self, parts, row_count):
        self.parts, self.row_count = parts, row_count
        self._counts = np.stack([part.component_weights for part in parts])
        self.component_weights = self._counts.sum(axis=0)
        self.cluster_weights = self._counts.sum(axis=1) / self._counts.sum()

    @property
    def codec(self):
        """How rows become what the autoencoders see, and back: the same for all clusters."""
        return self.parts[0].codec

    @property
    def kind(self):
        """Whether DataFrames or arrays were fitted."""
        return self.parts[0].kind

    @property
    def class_ratio(self):
        """Released share of each class."""
        return self.component_weights / self.component_weights.sum()

    def sample(self, components, rng):
        """Rows, or (rows, y), of given classes: a cluster by the released counts, a latent, the cluster's decoder."""
        components = np.asarray(components, dtype=np.int64)
        clusters = np.empty(len(components), dtype=np.int64)
        for k in np.unique(components):
            rows = np.flatnonzero(components == k)
            clusters[rows] = spread_components(len(rows), self._counts[:, k], rng)
        decoded = np.empty((len(components), self.parts[0].module.n_features), dtype=np.float32)
        for k in np.unique(clusters):
            rows, part = np.flatnonzero(clusters == k), self.parts[k]
            decoded[rows] = part._decode(part.draw_latents(len(rows), rng), components[rows])
        return self.parts[0]._rows(decoded, components, rng)

    def score_samples(self, X, y=None, n_importance=1, random_state=0):
        """Bound of the log-likelihood of each row: that of the mixture of the autoencoders, by the released sizes."""
        bounds = np.stack([part.score_samples(X, y, n_importance, random_state) for part in self.parts], axis=1)
        return np.logaddexp.reduce(bounds + np.log(np.maximum(self.cluster_weights, 1e-300)), axis=1)

    def to_state(self):
        """Return plain values and arrays for a release file; ValueError for modules of the user's own."""
        parts = [part.to_state() for part in self.parts]
        codecs = [part.pop("codec") for part in parts]
        return {
            "codec": codecs[0],
            "row_count": self.row_count,
            "parts": {str(k): part for k, part in enumerate(parts)},
        }

    @classmethod
    def from_state(cls, state):
        """Rebuild from `to_state`."""
        states = [state["parts"][str(k)] for k in range(len(state["parts"]))]
        parts = [PriVAEModel.from_state({**part, "codec": state["codec"]}) for part in states]
        for part in parts:
            part.codec = parts[0].codec
        return cls(parts, state["row_count"])


# ---- the fit ------------------------------------------------------------------------------------------------------
def fit_dpgm_model(rows, settings, plan, rng, neighboring):
    """Make all releases of the fit, after its charge.

    Parameters
    ----------
    rows : ArrayRows or FrameRows
    settings : dict
    plan : FitPlan
    rng : NoiseGenerator
    neighboring : str

    Returns
    -------
    DPGMModel
    """
    noise = plan.noise_multipliers
    codec, x, classes, likelihood, widths = learn_rows(rows, settings, plan, rng, neighboring)
    n_features, n_classes = x.shape[1] - codec.n_classes, max(codec.n_classes, 1)
    clusters, n_clusters = np.zeros(len(x), dtype=np.int64), settings["n_clusters"]
    if n_clusters > 1:
        unit = codec.row_norm if isinstance(rows, FrameRows) else _ARRAY_UNIT * n_features**0.5
        scale, public = settings["length_scale"] * max(unit, 1e-9), np.random.default_rng(_FREQUENCIES)
        features = RandomFeatures.draw(n_features, settings["n_frequencies"], scale, public)
        centers = find_centers(x[:, :n_features], features, settings, noise["clusters"], rng, neighboring)
        # from here on each record is in the one cluster that it and the released centres say
        clusters = nearest_centers(x[:, :n_features], centers, features)
    cells = clusters if classes is None else np.where(classes >= 0, clusters * n_classes + classes, -1)
    counts = add_gaussian(histogram(cells, n_clusters * n_classes), noise["counts"], rng, neighboring)
    row_count = float(len(x)) if neighboring == "replace_one" else max(1.0, float(counts.sum()))
    floor = max(1e-3 * float(np.abs(counts).sum()) / n_clusters, 1e-9)
    counts = np.maximum(counts, floor).reshape(n_clusters, n_classes)
    train = training_plan(settings, plan, row_count, counts.sum(axis=1), neighboring)
    _warn_of_small_clusters(counts.sum(axis=1), settings)
    net = make_net(
        settings,
        n_clusters,
        n_features,
        codec.n_classes,
        make_likelihood(likelihood, widths),
        plan=settings["receipt"].cover(train),
        scales=[train.expected_batch_size / size for size in train.part_batch_sizes],
        progress_text=f"epsilon {plan.epsilon:.3g}",
    )
    net.initialize()
    net.partial_fit(np.concatenate([x, clusters[:, None].astype(np.float32)], axis=1))
    parts = [
        PriVAEModel(codec, module, likelihood, float(sizes.sum()), sizes)
        for module, sizes in zip(net.module_.cpu().eval().parts, counts)
    ]
    model = DPGMModel(parts, row_count)
    model.gradient_noise = (net.noise_description_, net.noise_private_)
    return model


def find_centers(x, features, settings, noise_multiplier, rng, neighboring):
    """Release the centres of clusters of the random features of rows: k-means, one Gaussian release an iteration.

    Parameters
    ----------
    x : array of shape (n_samples, n_features)
    features : RandomFeatures
        Of norm 1.
    settings : dict
        n_clusters, cluster_steps, seed.
    noise_multiplier : float
        Of each of the `cluster_steps` releases.
    rng : NoiseGenerator
    neighboring : str

    Returns
    -------
    array of shape (n_clusters, d)
        The first release is the mean of all rows; the first centres lie about it, in directions drawn from the seed.
    """
    draws = np.random.default_rng(settings["seed"])
    centers, exact = None, noise_multiplier > 0
    for _ in range(settings["cluster_steps"]):
        query = cluster_sums(x, features, centers, exact=exact)
        released = add_gaussian(query, noise_multiplier, rng, neighboring)
        sd = noise_multiplier * query.sensitivity(neighboring)
        if centers is None:
            centers = _first_centers(released[0, 0], released[0, 1:], sd, settings["n_clusters"], draws)
        else:
            centers = _next_centers(centers, released[:, 0], released[:, 1:], sd, draws)
    return centers


# ---- functions of what was released ---------------------------------------------------------------------------------
def _first_centers(count, total, sd, n_clusters, draws):
    """Centres about the mean, as far from it as rows of norm 1 with that mean are on average."""
    mean = _into_ball(total / max(count, 1.0))
    directions = _directions(n_clusters, len(mean), draws)
    return mean + directions * _spread(mean, sd / max(count, 1.0))


def _next_centers(centers, counts, sums, sd, draws):
    """Means of the rows of each cluster; with one that the noise hides, the largest is cut in two."""
    n_features = sums.shape[1]
    # the count stands above its noise, and the noise of the mean is shorter than a row
    seen = counts > max(1.0, sd * max(_SEEN / CLUSTER_COUNT_WEIGHT, n_features**0.5))
    if not seen.any():
        return centers
    sizes, out = np.where(seen, counts, 0.0), centers.copy()
    out[seen] = [_into_ball(mean) for mean in sums[seen] / counts[seen, None]]
    for k in np.flatnonzero(~seen):
        largest = int(sizes.argmax())
        # to both sides of the mean: half of the rows are then nearer to the one, half to the other
        shift = _APART * _spread(out[largest], sd / sizes[largest]) * _directions(1, n_features, draws)[0]
        out[k], out[largest] = out[largest] + shift, out[largest] - shift
        sizes[largest] /= 2
        sizes[k] = sizes[largest]
    return out


def _into_ball(mean):
    return mean / max(1.0, float(np.linalg.norm(mean)))


def _spread(mean, noise):
    """Root-mean-square distance, from their released mean, of rows of norm 1; the mean's own noise taken off."""
    square = max(float(mean @ mean) - len(mean) * noise**2, 0.0)
    return max(1.0 - square, 0.01) ** 0.5


def _directions(n, n_features, draws):
    rows = draws.standard_normal((n, n_features))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def _warn_of_small_clusters(sizes, settings):
    """Tell, from released counts, of clusters that give less than a row a step."""
    small = int((settings["sampling_rate"] * sizes < 1).sum())
    if small:
        warnings.warn(
            f"{small} of {len(sizes)} clusters have, by their released counts, less than one row a step to learn from: "
            "lower n_clusters or raise sampling_rate",
            UtilityWarning,
            stacklevel=4,
        )
