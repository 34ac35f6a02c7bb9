"""PriVAE's released model, and the fit that makes it: facts, counts, and a network trained by DP-SGD."""

from __future__ import annotations

import warnings

import numpy as np

from ..data.arrays import ArrayCodec
from ..data.frames import FrameCodec, FrameRows
from ..data.labels import label_codes
from ..exceptions import UtilityWarning
from ..generators.components import spread_components
from ..mechanisms import add_gaussian, histogram
from ..tabular import sample_levels
from ..utils.file_checks import check_size
from ._privae_planning import make_likelihood, make_net, make_prior, training_plan

__all__ = ["PriVAEModel", "fit_privae_model", "learn_rows"]

_CHUNK = 4096
# How finely numeric columns are cut: the noise at which `plan_bins` takes the most bins.
_FINEST = 1e-12


class PriVAEModel:
    """Released state of a private variational autoencoder: encoder, decoder and prior.

    Parameters
    ----------
    codec : ArrayCodec or FrameCodec
    module : PriVAEModule
        On the CPU, in evaluation mode, its divergence dropped.
    likelihood : {"bernoulli", "gaussian", "laplace", "table"}
    row_count : float
    component_weights : array of shape (n_components,)
        Of classes, where the model is conditional on them, else one.

    Attributes
    ----------
    gradient_noise : (str, bool) or None
        Source of the noise of DP-SGD, in words, and whether it was private.
    """

    gradient_noise = None

    def __init__(self, codec, module, likelihood, row_count, component_weights):
        self.codec, self.module, self.likelihood = codec, module, likelihood
        self.row_count, self.component_weights = row_count, component_weights

    @property
    def kind(self):
        """Whether DataFrames or arrays were fitted."""
        return "frame" if isinstance(self.codec, FrameCodec) else "array"

    @property
    def n_latent(self):
        """Number of latent dimensions."""
        return self.module.n_latent

    @property
    def class_ratio(self):
        """Released share of each class."""
        return self.component_weights / self.component_weights.sum()

    # ---- rows out --------------------------------------------------------------------------------------------
    def sample(self, components, rng):
        """Rows, or (rows, y), of given classes: latents from the prior, through the decoder."""
        return self._rows(self._decode(self.draw_latents(len(components), rng), components), components, rng)

    def draw_latents(self, n, rng):
        """Draws of the prior, shape (n, n_latent)."""
        import torch

        normals = torch.from_numpy(rng.standard_normal((n, 1, 2, self.n_latent))).float()
        with torch.inference_mode():
            parts = [self.module.prior.sample(part)[:, 0].numpy() for part in normals.split(_CHUNK)]
        return np.concatenate(parts)

    def decode(self, latent, rng, classes=None):
        """Rows from latents, those of y left out; classes that are not given are drawn by their released shares."""
        if self.codec.n_classes and classes is None:
            classes = spread_components(len(latent), self.class_ratio, rng)
        decoded = self._rows(self._decode(latent, classes), classes, rng)
        return decoded[0] if isinstance(decoded, tuple) else decoded

    def _decode(self, latent, classes):
        """Mean of scaled rows, or probabilities of levels, shape (n, n_features)."""
        import torch

        z = torch.from_numpy(np.ascontiguousarray(latent, dtype=np.float32))
        labels = None
        if self.codec.n_classes:
            labels = torch.from_numpy(np.eye(self.codec.n_classes, dtype=np.float32)[classes])
        with torch.inference_mode():
            parts = []
            for i in range(0, len(z), _CHUNK):
                part = self.module.decode(z[i : i + _CHUNK], None if labels is None else labels[i : i + _CHUNK])
                parts.append(self.module.likelihood.mean(part).numpy())
        return np.concatenate(parts) if parts else np.zeros((0, self.module.n_features), dtype=np.float32)

    def _rows(self, decoded, classes, rng):
        if self.kind == "array":
            return self.codec.decode(np.clip(decoded, *self.codec.box), classes, rng)
        blocks = np.split(decoded, np.cumsum(self.codec.n_levels)[:-1], axis=1)
        codes = np.stack([sample_levels(block, rng) for block in blocks], axis=1)
        return self.codec.decode(codes, classes if self.codec.n_classes else None, rng)

    # ---- rows in ---------------------------------------------------------------------------------------------
    def encode(self, X):
        """Mean of the encoder's Gaussian for rows, shape (n, n_latent)."""
        import torch

        x, _ = self._scaled(X, None)
        with torch.inference_mode():
            parts = [self.module.encode(part)[0].numpy() for part in torch.from_numpy(x).split(_CHUNK)]
        return np.concatenate(parts).astype(np.float64)

    def reconstruct(self, X, y, rng):
        """Rows as the model remembers them; a class that is not given is the most likely one."""
        x, classes = self._scaled(X, y)
        if self.codec.n_classes:
            classes = self._fill_classes(x, classes)
        return self.decode(self.encode(X), rng, classes)

    def score_samples(self, X, y=None, n_importance=1, random_state=0):
        """Importance-weighted bound of the log-likelihood of each row (with one sample: the ELBO's integrand)."""
        x, classes = self._scaled(X, y)
        if not self.codec.n_classes:
            return self._bound(x, n_importance, random_state)
        by_class = self._bound_by_class(x, n_importance, random_state) + np.log(np.maximum(self.class_ratio, 1e-300))
        whole = np.logaddexp.reduce(by_class, axis=1)
        if classes is None:
            return whole
        known = by_class[np.arange(len(x)), np.maximum(classes, 0)]
        return np.where(classes < 0, whole, known)

    def _fill_classes(self, x, classes):
        best = self._bound_by_class(x, 1, 0).argmax(axis=1)
        return best if classes is None else np.where(classes < 0, best, classes)

    def _bound_by_class(self, x, n_importance, random_state):
        labels = np.eye(self.codec.n_classes, dtype=np.float32)
        parts = [
            self._bound(np.hstack([x, np.broadcast_to(label, (len(x), len(label)))]), n_importance, random_state)
            for label in labels
        ]
        return np.stack(parts, axis=1)

    def _bound(self, x, n_importance, random_state):
        import torch

        from ..nn._modules import DRAWS, fixed_normals, in_double

        # the same draws for all rows: the bound of a row is a function of that row alone
        n_draws, module = max(1, DRAWS // n_importance), in_double(self.module)
        draws = fixed_normals(n_draws * n_importance, (self.n_latent,), random_state)
        draws = draws.view(n_draws, n_importance, self.n_latent)
        rows = max(1, _CHUNK // n_importance)
        bounds = []
        with torch.inference_mode():
            for part in torch.from_numpy(np.ascontiguousarray(x, dtype=np.float64)).split(rows):
                each = [module.importance_bound(part, draw.expand(len(part), *draw.shape)) for draw in draws]
                bounds.append(torch.stack(each).mean(0).numpy())
        return np.concatenate(bounds).astype(np.float64)

    def _scaled(self, X, y):
        """Rows as the encoder takes them, float32, and class codes (None where y is not known)."""
        if self.kind == "frame":
            codes, classes = self._codes(X, y)
            return self.codec.one_hot(codes), classes
        missing = len(self.codec.scaling.lower) - X.shape[1]
        if missing:  # a numeric y: the middle of its bounds, where it is not known
            middle = (self.codec.scaling.lower[-1] + self.codec.scaling.upper[-1]) / 2
            X = np.column_stack([X, np.full(len(X), middle) if y is None else np.asarray(y, dtype=np.float64)])
        known = y is not None and self.codec.n_classes
        return self.codec.scale(X).astype(np.float32), label_codes(y, self.codec.classes) if known else None

    def _codes(self, frame, y):
        """Level and class codes of rows like those of `fit`; y may be left out where it came apart."""
        schema = self.codec.encoder.schema_
        missing = [name for name in schema.names if name not in frame.columns]
        if self.codec.y != "none" and missing == [schema.names[-1]]:
            column = schema[missing[0]]
            filler = column.values[0] if hasattr(column, "values") and column.values else column.bounds[0]
            codes, classes = self.codec.codes(frame.assign(**{missing[0]: filler if y is None else np.asarray(y)}))
            return codes, None if y is None else classes
        return self.codec.codes(frame)

    # ---- files -----------------------------------------------------------------------------------------------
    def to_state(self):
        """Return plain values and arrays for a release file; ValueError for modules of the user's own."""
        module = self.module
        prior = _describe_prior(module.prior)
        if module.architecture is None or prior is None:
            raise ValueError("a model with modules of your own cannot be saved: files hold no code")
        shape = module.architecture["image_shape"]
        return {
            "kind": self.kind,
            "codec": self.codec.to_state(),
            "likelihood": self.likelihood,
            "row_count": self.row_count,
            "component_weights": self.component_weights,
            "n_features": module.n_features,
            "n_latent": module.n_latent,
            "n_labels": module.n_labels,
            "architecture": {**module.architecture, "image_shape": None if shape is None else list(shape)},
            "prior": prior,
            "layers": {name: value.numpy().copy() for name, value in module.state_dict().items()},
        }

    @classmethod
    def from_state(cls, state):
        """Rebuild from `to_state`."""
        import torch

        from ..nn import PriVAEModule

        codec = (FrameCodec if state["kind"] == "frame" else ArrayCodec).from_state(state["codec"])
        widths = codec.n_levels if state["kind"] == "frame" else None
        check_size(state["n_latent"], state["prior"].get("n_mixture", 1))

        def make():
            with torch.device("cpu"):  # a prior reads numbers of its own
                prior = _prior_of(state["prior"], state["n_latent"])
            return PriVAEModule(
                state["n_features"],
                state["n_latent"],
                make_likelihood(state["likelihood"], widths),
                prior=prior,
                n_labels=state["n_labels"],
                **{**state["architecture"], "image_shape": _tuple(state["architecture"]["image_shape"])},
            )

        from ..nn._networks import check_module_arrays

        check_module_arrays(make, state["layers"])
        module = make()
        module.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in state["layers"].items()})
        return cls(codec, module.eval(), state["likelihood"], state["row_count"], state["component_weights"])


def _tuple(shape):
    return None if shape is None else tuple(shape)


def _describe_prior(prior):
    """What a file holds of a prior beside its tensors; None for a module of the user's own."""
    from ..nn import GaussianMixturePrior, NormalPrior, SparsePrior

    if type(prior) is NormalPrior:
        return {"kind": "normal"}
    if type(prior) is SparsePrior:
        return {"kind": "sparse", "sparsity": prior.sparsity, "spike_variance": prior.spike_variance}
    if type(prior) is GaussianMixturePrior:
        fields = {"n_mixture": prior.n_mixture, "variance": prior.variance, "learned": prior.learned}
        return {"kind": "mixture", **fields}
    return None


def _prior_of(state, n_latent):
    from ..nn import GaussianMixturePrior, SparsePrior

    if state["kind"] == "sparse":
        return SparsePrior(state["sparsity"], state["spike_variance"])
    if state["kind"] == "mixture":
        return GaussianMixturePrior(np.zeros((state["n_mixture"], n_latent)), state["variance"], state["learned"])
    return make_prior({"prior": "normal"}, n_latent)


def learn_rows(rows, settings, plan, rng, neighboring):
    """Release what was not declared of the rows, and encode them for a network.

    Parameters
    ----------
    rows, settings, plan, rng, neighboring
        As of `fit_privae_model`.

    Returns
    -------
    codec : ArrayCodec or FrameCodec
    x : float32 array of shape (n_samples, n_features + n_classes)
    classes : int array of shape (n_samples,) or None
        Negative for rows of no class.
    likelihood : str
    widths : array or None
        Levels of each block of a table.
    """
    noise = plan.noise_multipliers
    if isinstance(rows, FrameRows):
        codec, _ = rows.learn({**noise, "moments": _FINEST}, plan.extra_delta, rng, neighboring)
        x, likelihood, widths = rows.one_hot_with_labels(codec), "table", codec.n_levels
        classes = codec.codes(rows.frame)[1]
    else:
        codec = rows.learn(noise, plan.extra_delta, rng, neighboring)
        x, classes, widths = rows.scaled_with_labels(codec), rows.codes, None
        likelihood = settings["likelihood"]
        if likelihood == "auto":
            likelihood = "bernoulli" if (codec.box[0] >= 0).all() else "gaussian"
    return codec, x, classes, likelihood, widths


def fit_privae_model(rows, settings, plan, rng, neighboring):
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
    PriVAEModel
    """
    noise = plan.noise_multipliers
    codec, x, classes, likelihood, widths = learn_rows(rows, settings, plan, rng, neighboring)
    counts = np.ones(1)
    if "counts" in noise:
        cells = np.zeros(len(x), dtype=np.int64) if classes is None else classes
        counts = add_gaussian(histogram(cells, max(codec.n_classes, 1)), noise["counts"], rng, neighboring)
    row_count = float(len(x)) if neighboring == "replace_one" else max(1.0, float(counts.sum()))
    weights = np.maximum(counts, max(1e-3 * float(np.abs(counts).sum()), 1e-9))
    train, enough = training_plan(settings, plan, row_count, neighboring)
    if not enough:
        warnings.warn(
            f"few records a step for {getattr(train, 'n_groups', 1)} groups: most are smaller than the divergence "
            "needs; lower n_groups or raise sampling_rate",
            UtilityWarning,
            stacklevel=2,
        )
    net = make_net(
        settings,
        x.shape[1] - codec.n_classes,
        codec.n_classes,
        make_likelihood(likelihood, widths),
        plan=settings["receipt"].cover(train),
        progress_text=f"epsilon {plan.epsilon:.3g}",
    )
    net.initialize()
    net.partial_fit(x)
    module = net.module_.cpu().eval()
    module.divergence = None  # a function of the user's own has no place in a released model
    model = PriVAEModel(codec, module, likelihood, row_count, weights)
    model.gradient_noise = (net.noise_description_, net.noise_private_)
    return model
