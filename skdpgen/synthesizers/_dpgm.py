"""DP-GM: private k-means on random features, and a variational autoencoder for each cluster."""

from __future__ import annotations

from dataclasses import dataclass, replace
from inspect import signature
from numbers import Integral, Real

import numpy as np

from ..accounting import Phase
from ..data.frames import FrameRows
from ..generators.components import spread_components
from ..mechanisms import CLUSTER_COUNT_WEIGHT, add_gaussian, cluster_sums, histogram, nearest_centers
from ..mechanisms._gaussian import upper_bound
from ..utils.callers import warn_user
from ..utils.validation import MOST_UNITS, Interval
from ._checkpoint import codec_of
from ._dp_merf import RandomFeatures
from ._phases import COUNT_SHARE, remaining_share
from ._privae import VAE_CONSTRAINTS, VAE_TRAINING, LikelihoodSynthesizer
from ._released import ReleasedModel
from ._training import (
    ClassCounts,
    counted_rows,
    encode_rows,
    have_class,
    learn_codec,
    network_shape,
    positive_counts,
    resolve_sampling,
)
from ._vae_model import (
    DEFAULT_AVERAGE,
    DEFAULT_LEARNING_RATE,
    VAEModel,
    VAESettings,
    check_modules,
    make_likelihood,
    vae_settings,
)

# Seed of the frequencies: public, and the same in every fit, so that fits can be compared release by release.
_FREQUENCIES = 20171129
# Unit of the length scale: the root of the number of columns of a table; columns in the unit box differ by less.
_ARRAY_UNIT = 0.3
# Released rows of a cluster below which its sums are noise, in standard deviations of its count.
_SEEN = 3.0
# How far apart the halves of a cluster start, over the spread of its rows.
_APART = 0.1


@dataclass(frozen=True)
class ClusterSettings:
    """K-means on random features, which releases counts and sums in every step."""

    n_clusters: int
    steps: int
    share: float
    n_frequencies: int
    length_scale: float
    seed: int


@dataclass(frozen=True, eq=False)
class DPGMSettings:
    """The clusters, and the autoencoder of each."""

    clusters: ClusterSettings
    vae: VAESettings


class DPGMSynthesizer(LikelihoodSynthesizer):
    """DP-GM: private k-means on random features, then one variational autoencoder for each cluster.

    Releases noisy counts and sums of the rows of each cluster in every iteration, the counts of the clusters, and all
    autoencoders: each step sums the clipped gradients of single records, each in the block of the autoencoder of its
    cluster, and adds noise to all blocks.

    Parameters
    ----------
    epsilon, delta, neighboring, accountant, noise, random_state, progress
        As in `P3GMSynthesizer`: the budget, where it is charged, and the sources of randomness.
    n_clusters : int, default=5
        Number of clusters; public. With 1 there is no k-means: its parameters below, and "clusters" of `budget_split`,
        are refused, its share goes to the training, and the model is that of `DPVAESynthesizer`.
    cluster_steps : int, default=5
        Number of releases of k-means. The first is the mean of all rows; the initial centres lie around it.
    n_frequencies : int, default=20
        Number of random frequencies, the same in every fit; k-means runs on their cosines and sines.
    length_scale : float, default=1.0
        Length scale of the kernel, relative to the root of the number of columns (arrays: to .3 of that root).
    n_components, beta, likelihood
        Of each autoencoder, as in `DPVAESynthesizer`.
    target, schema, classes, target_type, bounds, on_invalid
        As in `P3GMSynthesizer`: what is public of the data. With a categorical y or `target` the decoders are
        conditional on the class, and clusters are found without it; a numeric one is a column like the others.
    image_shape : (height, width) or (height, width, channels) or None, default=None
        Arrays: shape of an image, if rows are images; the networks are then convolutional. A row has its pixels line by
        line, and the channels of a pixel side by side.
    budget_split : dict or None, default=None
        Shares of the budget: "bounds" of each kind of fact that is learned (schema, bins of numeric columns; bounds,
        classes), "clusters" of k-means. None: {"bounds": .05, "clusters": .1}.
    training : DPSGD or None, default=None
        Training of all autoencoders together; the sampling rate is the same in all clusters. Default: 500 steps at a
        `sampling_rate` of .02, a `gradient_bound` of 1, and as `net` a `DPNet` of `PartitionedVAEModule` with Adam at
        5e-3 and a `ParameterAverage` of .99. It takes no `warm_start_steps`.
    checkpoint : str, path or None, default=None
        File (.safetensors) from which the same call resumes a fit whose process was killed; nothing is charged again.
        Needs an `accountant` with a ledger file. The file contains released values alone. When the fit is complete, it
        is the model file, for ``skdpgen.load``.
    unit, max_rows_per_unit
        As in `P3GMSynthesizer`: who is protected, where a person may have several rows, and how many of them are used.
        With ``weighting="units"`` the gradient of a unit is the mean over its rows, else their sum; it is clipped once,
        over all autoencoders.

    Attributes
    ----------
    accountant_, card_, classes_, class_ratio_, rest_ratio_, row_count_, schema_, summary_, bounds_, model_
        As in `P3GMSynthesizer`.
    cluster_weights_ : array of shape (n_clusters,)
        Released shares of the clusters, by which `sample` draws them.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    **Privacy.** Beside the events that `fit` names, it charges `cluster_steps` Gaussian events for the centres, one for
    the counts of clusters and classes, and `steps` Poisson-sampled ones for all autoencoders. A row is in the one
    cluster that it and the released centres say, so its gradient changes one autoencoder (under "replace_one" at most
    two, which costs less than what is charged). The rows of a unit may change several, and their gradient is clipped
    once over all.

    Against the paper: counts and sums of an iteration in one query, noise calibrated jointly by privacy loss
    distributions, Poisson sampling at one public rate in place of batches of each cluster, sizes of clusters that are
    released and do not follow from the data. A record is in one cluster, so the autoencoders cost what one of them
    costs.

    References
    ----------
    .. [1] G. Acs, L. Melis, C. Castelluccia, E. De Cristofaro, "Differentially private mixture of generative neural
       networks", IEEE Transactions on Knowledge and Data Engineering, 2019.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from skdpgen import DPGMSynthesizer, DPSGD
    >>> X, y = load_digits(return_X_y=True)
    >>> synth = DPGMSynthesizer(3.0, n_clusters=2, bounds=(0, 16), classes=range(10), training=DPSGD(20, 0.05))
    >>> X_new, y_new = synth.fit(X, y).sample(500)
    >>> X_new.shape, y_new.shape
    ((500, 64), (500,))
    """

    _split_names = ("bounds", "clusters")
    _training_defaults = VAE_TRAINING
    _parameter_constraints = {
        **VAE_CONSTRAINTS,
        "n_clusters": [Interval(Integral, 1, MOST_UNITS, closed="both")],
        "cluster_steps": [Interval(Integral, 1, None, closed="left")],
        "n_frequencies": [Interval(Integral, 1, MOST_UNITS, closed="both")],
        "length_scale": [Interval(Real, 1e-6, 1e6, closed="both")],
    }

    def __init__(
        self,
        epsilon=1.0,
        delta=None,
        *,
        neighboring=None,
        accountant=None,
        n_clusters=5,
        cluster_steps=5,
        n_frequencies=20,
        length_scale=1.0,
        n_components=10,
        beta=1.0,
        likelihood="auto",
        target=None,
        schema=None,
        classes=None,
        target_type=None,
        bounds=None,
        on_invalid="clip",
        image_shape=None,
        budget_split=None,
        training=None,
        checkpoint=None,
        unit=None,
        max_rows_per_unit=None,
        noise="secure",
        random_state=None,
        progress="auto",
    ):
        self.epsilon, self.delta, self.neighboring, self.accountant = epsilon, delta, neighboring, accountant
        self.target, self.schema, self.classes, self.target_type = target, schema, classes, target_type
        self.bounds, self.image_shape = bounds, image_shape
        self.budget_split, self.on_invalid = budget_split, on_invalid
        self.n_components, self.beta, self.likelihood = n_components, beta, likelihood
        self.n_clusters, self.cluster_steps = n_clusters, cluster_steps
        self.n_frequencies, self.length_scale = n_frequencies, length_scale
        self.training, self.checkpoint = training, checkpoint
        self.unit, self.max_rows_per_unit = unit, max_rows_per_unit
        self.noise, self.random_state, self.progress = noise, random_state, progress

    def _prepare(self, X, y, accountant, groups=None):
        parameters = self._resolve()
        self._check_clusters()
        vae = vae_settings(parameters, self._seed())
        rows = self._read(X, y, groups)
        vae = replace(vae, training=resolve_sampling(vae.training, len(rows), self._relation(accountant), **parameters))
        clusters = ClusterSettings(
            self.n_clusters, self.cluster_steps, self._share("clusters"), self.n_frequencies, self.length_scale,
            vae.network.seed,
        )  # fmt: skip
        settings = DPGMSettings(clusters, vae)
        plan = self._calibrate_phases(accountant, rows, _plan_phases(rows, settings, self._share("bounds")))
        _check_network(settings.vae, rows)
        return (rows, settings), plan

    def _check_clusters(self):
        """Refuse parameters of k-means where there is none."""
        if self.n_clusters > 1:
            return
        defaults = {name: parameter.default for name, parameter in signature(DPGMSynthesizer).parameters.items()}
        names = ("cluster_steps", "n_frequencies", "length_scale")
        given = [f"{name}=" for name in names if getattr(self, name) != defaults[name]]
        given += ['"clusters" of budget_split='] * ("clusters" in (self.budget_split or {}))
        if given:
            raise ValueError(f"{given[0]} is used only by k-means, which needs n_clusters=2 or more: leave it out")

    def _release(self, rows, settings, fit):
        return fit_dpgm_model(rows, settings, fit)

    def _set_model(self, model):
        super()._set_model(model)
        self.cluster_weights_ = model.cluster_weights

    @staticmethod
    def _model_from_state(state):
        return DPGMModel.from_state(state)


# ---- budget and network -------------------------------------------------------------------------------------------
def _plan_phases(rows, settings, bounds_share):
    """Return the phases of a fit, in the order of their releases: functions of public parameters alone."""
    clusters, learned = settings.clusters, list(rows.phases(bounds_share))
    if clusters.n_clusters > 1:
        learned.append(Phase("clusters", clusters.share, steps=clusters.steps))
    # under replace_one too: the sizes of the clusters are private where the number of rows is not
    learned.append(Phase("counts", COUNT_SHARE))
    message = (
        f'"bounds": {bounds_share:g}, "clusters": {clusters.share:g} of budget_split leave nothing to the training'
    )
    # one phase for the models of all clusters: see `PartedPlan`
    return [*learned, settings.vae.training.phase("training", remaining_share(learned, message))]


def _make_net(settings, n_parts, n_features, n_labels, likelihood, *, plan=None, scales=(), progress_text=""):
    """The net of the settings, or the default; `scales` of the gradients of each part, after their release."""
    from ..nn import DPNet, ParameterAverage, PartitionedVAEModule, ScaledParts

    average = [("average", ParameterAverage(DEFAULT_AVERAGE))]
    net = settings.network.make(
        lambda: DPNet(PartitionedVAEModule, lr=DEFAULT_LEARNING_RATE, callbacks=average),
        plan,
        progress_text,
        n_parts=n_parts,
        n_features=n_features,
        n_latent=settings.n_components,
        likelihood=likelihood,
        beta=settings.beta,
        n_labels=n_labels,
        image_shape=settings.image_shape,
    )
    own = net.callbacks if isinstance(net.callbacks, list) else []
    # by itself: skorch's set_params fails where there were none
    net.callbacks = [("scaled_parts", ScaledParts(scales)), *own]
    return net


def _check_network(settings, rows):
    """Refuse, before anything is charged, what cannot be trained privately, or at all (see `check_modules`)."""
    from ..nn import PartitionedVAEModule

    settings.network.check()
    n_features, n_labels, exact = network_shape(rows)

    def make(columns):  # two autoencoders are refused for whatever all of them are
        return _make_net(settings, 2, columns, n_labels, make_likelihood("gaussian"))

    check_modules(
        make, PartitionedVAEModule, lambda module: module.parts[0], settings, n_features, exact, n_more=n_labels + 1
    )


def training_plan(training, fit, step_size, cluster_sizes, margin):
    """The DP-SGD plan of a charged fit, for the models of all clusters; its denominators are public or released.

    `step_size`: Count of rows, or of units where each counts 1 (`ChargedFit.step_size`): public or released.
    `cluster_sizes` (n_clusters,): released, in the same weights. `margin`: what noise took from each, at most.
    Returns PartedPlan: one sampling rate and one number of steps for all clusters, and for all sizes that they may
        have.
    """
    from ..dpsgd import PartedPlan
    from ..dpsgd._plan import plan_of_fit

    rate = training.sampling_rate
    sizes = tuple(max(1.0, rate * float(size)) for size in cluster_sizes)
    own = {"l2_bound": training.gradient_bound, "part_batch_sizes": sizes, "part_batch_margin": rate * margin}
    return plan_of_fit(training, fit.plan, fit.noise["training"], step_size, PartedPlan, **own)


# ---- the released model -------------------------------------------------------------------------------------------
class DPGMModel(ReleasedModel):
    """Released state of DP-GM: one variational autoencoder a cluster, and the sizes of the clusters.

    `parts`: with one codec; their `component_weights` are the released counts of the classes within the cluster.
    `cluster_weights` (n_clusters,): released shares of the clusters.
    """

    def __init__(self, parts, row_count):
        self._counts = np.stack([part.component_weights for part in parts])
        super().__init__(parts[0].codec, row_count, self._counts.sum(axis=0))
        self.parts, self.cluster_weights = parts, self._counts.sum(axis=1) / self._counts.sum()

    def draw(self, components, rng):
        """Vectors of given classes: a cluster by the released counts, a latent, the cluster's decoder."""
        components = np.asarray(components, dtype=np.int64)
        clusters = np.empty(len(components), dtype=np.int64)
        for k in np.unique(components):
            rows = np.flatnonzero(components == k)
            clusters[rows] = spread_components(len(rows), self._counts[:, k], rng)
        decoded = np.empty((len(components), self.parts[0].module.n_features), dtype=np.float32)
        for k in np.unique(clusters):
            rows, part = np.flatnonzero(clusters == k), self.parts[k]
            decoded[rows] = part.decode_mean(part.draw_latents(len(rows), rng), components[rows])
        return self.parts[0].vectors(decoded, rng)

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
        parts = [VAEModel.from_state({**part, "codec": state["codec"]}) for part in states]
        for part in parts:  # one codec for all
            part.codec = parts[0].codec
        return cls(parts, state["row_count"])


# ---- the fit -----------------------------------------------------------------------------------------------------
def fit_dpgm_model(rows, settings, fit):
    """Make all releases of DP-GM: facts that were not declared, clusters, their counts, and the steps of DP-SGD."""
    vae, n_clusters = settings.vae, settings.clusters.n_clusters
    codec, (x, _, likelihood, widths), clusters, _, counts = fit.facts(
        lambda: _release_facts(rows, settings, fit),
        lambda facts: {"codec": facts[0].to_state(), "centers": facts[3], **facts[4].to_state()},
        lambda state: _restore_facts(rows, settings, state),
    )
    n_features, n_classes = x.shape[1] - codec.n_classes, max(codec.n_classes, 1)
    counted = counts.total
    row_count = fit.sample_size(rows, counted.value)
    margin = upper_bound(np.zeros(n_classes), counts.noise_sd)
    counts = positive_counts(counts.counts, n_clusters).reshape(n_clusters, n_classes)
    train = training_plan(vae.training, fit, fit.step_size(row_count, counted), counts.sum(axis=1), margin)
    _warn_of_small_clusters(counts.sum(axis=1), vae.training.sampling_rate)
    net = _make_net(
        vae,
        n_clusters,
        n_features,
        codec.n_classes,
        make_likelihood(likelihood, widths),
        plan=fit.cover(train),
        scales=[train.expected_batch_size / size for size in train.part_batch_sizes],
        progress_text=fit.progress_text,
    )
    net.fit_file = fit.checkpoint
    net.initialize()
    x, clusters, units = counted_rows(rows, have_class(x, codec.n_classes), x, clusters)
    net.partial_fit(np.concatenate([x, clusters[:, None].astype(np.float32)], axis=1), groups=units)
    parts = [
        VAEModel(codec, module, likelihood, float(sizes.sum()), sizes)
        for module, sizes in zip(net.module_.cpu().eval().parts, counts)
    ]
    model = DPGMModel(parts, row_count)
    model.gradient_noise = (net.noise_description_, net.noise_private_)
    return model


def _release_facts(rows, settings, fit):
    """Make the releases before the training: facts that were not declared, centres of clusters, and their counts.

    Returns `codec`; `encoded`: from `encode_rows`; private; `clusters` (n_samples,): private; `centers` (n_clusters,
    d); `counts`, ClassCounts: (n_clusters * n_classes,).
    """
    noise, rng, neighboring = fit.noise, fit.rng, fit.neighboring
    n_clusters = settings.clusters.n_clusters
    codec = learn_codec(rows, fit)
    x, classes, *_ = encoded = encode_rows(rows, codec, settings.vae)
    n_features, n_classes = x.shape[1] - codec.n_classes, max(codec.n_classes, 1)
    clusters, centers = np.zeros(len(x), dtype=np.int64), None
    if n_clusters > 1:
        features = _random_features(codec, isinstance(rows, FrameRows), n_features, settings.clusters)
        how = settings.clusters, noise["clusters"], rng, neighboring
        centers = find_centers(x[:, :n_features], features, *how, unit_sizes=rows.unit_sizes)
        # from here on each record is in the one cluster that it and the released centres say
        clusters = nearest_centers(x[:, :n_features], centers, features)
    cells = clusters if classes is None else np.where(classes >= 0, clusters * n_classes + classes, -1)
    counted = histogram(cells, n_clusters * n_classes, rows.unit_sizes)
    of_counts = noise["counts"]
    released = add_gaussian(counted, of_counts, rng, neighboring)
    return codec, encoded, clusters, centers, ClassCounts(released, of_counts * counted.sensitivity(neighboring))


def _restore_facts(rows, settings, state):
    """What `_release_facts` returned, by the releases in a checkpoint."""
    codec, centers = codec_of(state["codec"]), state["centers"]
    rows.follow(codec)
    encoded = encode_rows(rows, codec, settings.vae)
    clusters = np.zeros(len(encoded[0]), dtype=np.int64)
    if centers is not None:
        n_features = encoded[0].shape[1] - codec.n_classes
        features = _random_features(codec, isinstance(rows, FrameRows), n_features, settings.clusters)
        clusters = nearest_centers(encoded[0][:, :n_features], centers, features)
    return codec, encoded, clusters, centers, ClassCounts.from_state(state)


def _random_features(codec, frame, n_features, settings):
    """Random features of rows, the same in every fit with this codec."""
    unit = codec.row_norm if frame else _ARRAY_UNIT * n_features**0.5
    scale, public = settings.length_scale * max(unit, 1e-9), np.random.default_rng(_FREQUENCIES)
    return RandomFeatures.draw(n_features, settings.n_frequencies, scale, public)


def find_centers(x, features, settings, noise_multiplier, rng, neighboring, *, unit_sizes=None):
    """Release the centres of clusters of the random features of rows: k-means, one Gaussian release an iteration.

    `x`: shape (n_samples, n_features).
    `features`: of norm 1.
    `noise_multiplier`: of each of the releases.
    `unit_sizes` (n_samples,): where units count 1, the number of rows used of the unit of each row.
    Returns an array of shape (n_clusters, d): the first release is the mean of all rows; the first centres lie about
        it, in directions drawn from the seed.
    """
    draws = np.random.default_rng(settings.seed)
    centers, exact = None, noise_multiplier > 0
    for _ in range(settings.steps):
        query = cluster_sums(x, features, centers, exact=exact, unit_sizes=unit_sizes)
        released = add_gaussian(query, noise_multiplier, rng, neighboring)
        sd = noise_multiplier * query.sensitivity(neighboring)
        if centers is None:
            centers = _first_centers(released[0, 0], released[0, 1:], sd, settings.n_clusters, draws)
        else:
            centers = _next_centers(centers, released[:, 0], released[:, 1:], sd, draws)
    return centers


# ---- functions of what was released -------------------------------------------------------------------------------
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


def _warn_of_small_clusters(sizes, sampling_rate):
    """Warn, by released counts, of clusters that give less than a row a step."""
    small = int((sampling_rate * sizes < 1).sum())
    if small:
        warn_user(
            f"{small} of {len(sizes)} clusters have, by their released counts, less than one row a step to learn from: "
            "lower n_clusters or raise sampling_rate"
        )
