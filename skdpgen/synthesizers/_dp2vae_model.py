"""DP2-VAE's released model, which holds a decoder and no encoder, and the fit that makes it."""

from __future__ import annotations

import warnings

import numpy as np
from scipy.special import expit, logsumexp

from ..data.arrays import ArrayCodec
from ..data.frames import FrameCodec, FrameRows
from ..data.labels import label_codes
from ..exceptions import UtilityWarning
from ..tabular import sample_levels
from ._dp2vae_planning import architecture_of, expected_empty, likelihood_of, make_networks, make_scratch, subset_plan
from ._dp2vae_start import release_facts, start_networks

__all__ = ["DP2VAEModel", "fit_dp2vae_model"]

_CHUNK = 4096
_SCORE_LATENTS = 256


class DP2VAEModel:
    """Released state: codec and decoder.

    Parameters
    ----------
    codec : ArrayCodec or FrameCodec
    decoder : Module
        (latent, one-hot class) to what the likelihood takes; on the CPU, in evaluation mode.
    description : dict or None
        Parameters of `make_decoder`; None for a module of the user's own.
    likelihood : {"bernoulli", "gaussian", "table"}
    n_latent : int
    row_count : float
    component_weights : array of shape (n_components,)
        Of classes, where the model is conditional on them, else one.
    gradient_noise : (str, bool) or None
        Source of the noise of stage 2, in words, and whether it was private.
    """

    def __init__(self, codec, decoder, description, likelihood, n_latent, row_count, component_weights, noise=None):
        self.codec, self.decoder, self.description, self.likelihood = codec, decoder, description, likelihood
        self.n_latent, self.row_count, self.component_weights = n_latent, row_count, component_weights
        self.gradient_noise = noise

    @property
    def kind(self):
        """Whether DataFrames or arrays were fitted."""
        return "frame" if isinstance(self.codec, FrameCodec) else "array"

    @property
    def class_ratio(self):
        """Released share of each class."""
        return self.component_weights / self.component_weights.sum()

    def sample(self, components, rng):
        """Rows, or (rows, y), of given classes."""
        latent = rng.standard_normal((len(components), self.n_latent)).astype(np.float32)
        parts = [
            self._decode(latent[i : i + _CHUNK], components[i : i + _CHUNK]) for i in range(0, len(latent), _CHUNK)
        ]
        output = np.concatenate(parts)
        if self.likelihood == "table":
            codes = np.stack([sample_levels(p, rng) for p in _softmax_blocks(output, self.codec.n_levels)], axis=1)
            return self.codec.decode(codes, components if self.codec.n_classes else None, rng)
        if self.likelihood == "gaussian":
            mean, log_scale = np.split(output, 2, axis=1)
            unit = mean + np.exp(np.clip(log_scale, -5.0, 1.0)) * rng.standard_normal(mean.shape)
        else:
            unit = expit(output)
        low, high = self.codec.box
        return self.codec.decode(low + np.clip(unit, 0.0, 1.0) * (high - low), components, rng)

    def _decode(self, latent, components):
        """Output of the decoder, float32."""
        import torch

        labels = np.zeros((len(latent), 0), dtype=np.float32)
        if self.codec.n_classes:
            labels = np.eye(self.codec.n_classes, dtype=np.float32)[components]
        with torch.inference_mode():
            return self.decoder(torch.from_numpy(latent), torch.from_numpy(labels)).numpy()

    def score_samples(self, X, y=None):
        """Log-likelihood of each row by latents drawn from the prior: a bound from below, on average."""
        x, classes = self._unit_rows(X, y)
        latent = np.random.default_rng(0).standard_normal((_SCORE_LATENTS, self.n_latent)).astype(np.float32)
        n_classes = max(self.codec.n_classes, 1)
        scores = np.empty((len(x), n_classes))
        for k in range(n_classes):
            output = self._decode(latent, np.full(len(latent), k)).astype(np.float64)
            scores[:, k] = logsumexp(self._log_prob(output, x), axis=1) - np.log(len(latent))
        whole = logsumexp(scores + np.log(np.maximum(self.class_ratio, 1e-300)), axis=1)
        if classes is None or not self.codec.n_classes:
            return whole
        return np.where(classes < 0, whole, scores[np.arange(len(x)), np.maximum(classes, 0)])

    def _log_prob(self, output, x):
        """Log-probability of rows under each decoded latent, shape (n_rows, n_latents): matrix products alone."""
        if self.likelihood == "table":
            blocks = _softmax_blocks(output, self.codec.n_levels)
            return x @ np.log(np.maximum(np.concatenate(blocks, axis=1), 1e-300)).T
        if self.likelihood == "bernoulli":
            return x @ output.T - np.logaddexp(0.0, output).sum(axis=1)
        mean, log_scale = np.split(output, 2, axis=1)
        log_scale = np.clip(log_scale, -5.0, 1.0)
        weight = np.exp(-2 * log_scale)
        squares = (x * x) @ weight.T - 2 * x @ (weight * mean).T + (weight * mean * mean).sum(axis=1)
        return -0.5 * squares - (log_scale + 0.5 * np.log(2 * np.pi)).sum(axis=1)

    def _unit_rows(self, X, y):
        """Rows as the decoder models them, and class codes or None; of y that X lacks, the middle of the bounds."""
        if self.kind == "frame":
            schema = self.codec.encoder.schema_
            missing = [name for name in schema.names if name not in X.columns]
            if self.codec.y != "none" and missing == [schema.names[-1]]:
                column = schema[missing[0]]
                filler = column.values[0] if hasattr(column, "values") and column.values else column.bounds[0]
                X = X.assign(**{missing[0]: filler if y is None else np.asarray(y)})
                codes, classes = self.codec.codes(X)
                return self.codec.one_hot(codes), None if y is None else classes
            codes, classes = self.codec.codes(X)
            return self.codec.one_hot(codes), classes
        missing = len(self.codec.scaling.lower) - X.shape[1]
        if missing:
            scaling = self.codec.scaling
            middle = (scaling.lower + scaling.upper)[-missing:] / 2
            X = np.column_stack([X, np.broadcast_to(middle, (len(X), missing))])
        known = y is not None and self.codec.n_classes
        return unit_rows(self.codec, X), label_codes(y, self.codec.classes) if known else None

    def to_state(self):
        """Return plain values and arrays for a release file; ValueError for a decoder of the user's own."""
        if self.description is None:
            raise ValueError("a model whose decoder is a module of your own cannot be saved: files hold no code")
        return {
            "kind": self.kind,
            "codec": self.codec.to_state(),
            "description": self.description,
            "decoder": {name: p.detach().numpy().copy() for name, p in self.decoder.named_parameters()},
            "likelihood": self.likelihood,
            "n_latent": self.n_latent,
            "row_count": self.row_count,
            "component_weights": self.component_weights,
        }

    @classmethod
    def from_state(cls, state):
        """Rebuild from `to_state`."""
        import torch

        from ..nn._dp2vae import make_decoder

        described = dict(state["description"])
        if described["image_shape"] is not None:
            described["image_shape"] = tuple(described["image_shape"])
        from ..nn._networks import check_module_arrays

        check_module_arrays(lambda: make_decoder(**described), state["decoder"])
        decoder = make_decoder(**described)
        decoder.load_state_dict({name: torch.from_numpy(np.array(p)) for name, p in state["decoder"].items()})
        codec = {"array": ArrayCodec, "frame": FrameCodec}[state["kind"]].from_state(state["codec"])
        rest = (state["likelihood"], state["n_latent"], state["row_count"], state["component_weights"])
        return cls(codec, decoder.eval(), state["description"], *rest)


def _softmax_blocks(output, widths):
    blocks = np.split(output, np.cumsum(widths)[:-1], axis=1)
    blocks = [np.exp(block - block.max(axis=1, keepdims=True)) for block in blocks]
    return [block / block.sum(axis=1, keepdims=True) for block in blocks]


def unit_rows(codec, X):
    """Rows of an array in [0, 1], by the declared or released bounds."""
    low, high = codec.box
    return ((codec.scale(X) - low) / (high - low)).astype(np.float32)


# ---- the fit ------------------------------------------------------------------------------------------------------
def fit_dp2vae_model(rows, settings, plan, rng, neighboring, stream, ids, chunks):
    """Make all releases of the fit, after its charge.

    Parameters
    ----------
    rows : ArrayRows or FrameRows
    settings : dict
    plan : FitPlan
        Charged.
    rng : NoiseGenerator
    neighboring : str
    stream : numpy.random.Generator
        For what needs no privacy: synthetic rows of the start.
    ids : array or None
        Of records, for the keyed hash.
    chunks : (int, int)
        Subsets at once in stage 1 and in stage 2.

    Returns
    -------
    DP2VAEModel
    """
    codec, counts, synthetic = release_facts(rows, settings, plan, rng, neighboring, stream)
    row_count = float(len(rows)) if neighboring == "replace_one" else max(1.0, float(counts.sum()))
    weights = np.maximum(counts, max(1e-3 * float(np.abs(counts).sum()), 1e-9))
    if isinstance(rows, FrameRows):
        codes, classes = codec.codes(rows.frame)
        x, width = codec.one_hot(codes), int(codec.n_levels.sum())
        classes = np.zeros(len(x), dtype=np.int64) if classes is None else classes
    else:
        x, classes = unit_rows(codec, rows.X), rows.codes
        width = x.shape[1]
    _say_what_is_rare(settings, codec, weights, row_count)
    likelihood, name, n_outputs = _make_likelihood(rows, settings, codec, width)
    encoder, decoder = make_networks(settings, width, codec.n_classes, n_outputs)
    scratch = start_networks(
        encoder, decoder, make_scratch(settings, n_outputs, codec.n_classes), synthetic, codec.n_classes, likelihood,
        settings,
    )  # fmt: skip
    noise = _train(
        (x, classes, ids), (encoder, decoder, scratch), likelihood, codec.n_classes, settings, plan, rng, chunks
    )
    description = None
    if settings["decoder"] is None:
        description = {
            "architecture": architecture_of(settings),
            "n_outputs": n_outputs,
            "n_classes": codec.n_classes,
            "n_latent": settings["n_components"],
            "image_shape": None if settings["image_shape"] is None else [int(s) for s in settings["image_shape"]],
        }
    return DP2VAEModel(
        codec, decoder.cpu().eval(), description, name, settings["n_components"], row_count, weights, noise
    )


def _make_likelihood(rows, settings, codec, width):
    from ..nn._dp2vae import LIKELIHOODS

    name = likelihood_of(settings, rows)
    kind = LIKELIHOODS[name]
    return (kind(codec.n_levels.tolist()) if name == "table" else kind()), name, kind.outputs_per_column * width


def _say_what_is_rare(settings, codec, weights, row_count):
    """Tell, from released counts alone, of empty subsets and of classes that most of them do not have."""
    n_subsets = settings["n_subsets"]
    if (empty := expected_empty(n_subsets, row_count)) > 0.05:
        warnings.warn(
            f"n_subsets={n_subsets} for about {row_count:.0f} rows: some {empty:.0%} of the subsets are empty and "
            "contribute nothing but noise",
            UtilityWarning,
            stacklevel=2,
        )
    if codec.n_classes > 1:
        absent = np.exp(-row_count * weights / weights.sum() / n_subsets)
        rare = [repr(c) for c, share in zip(codec.classes, absent) if share > 0.5 >= empty]
        if rare:
            told = ", ".join(rare[:5]) + (f" and {len(rare) - 5} more" if len(rare) > 5 else "")
            warnings.warn(
                f"most of the {n_subsets} subsets have no row of the classes {told}: their encoders learn nothing of "
                "them; lower n_subsets",
                UtilityWarning,
                stacklevel=2,
            )


def _train(data, networks, likelihood, n_classes, settings, plan, rng, chunks):
    """Stage 1 and stage 2; the encoders are gone when it returns. Returns what the card says of the noise."""
    from ..dpsgd._subsets import assign_subsets, hash_subsets
    from ..nn._dp2vae_training import EncoderStack, EncoderTraining, SubsetRows, pretrain_encoders, train_decoder

    (x, classes, ids), (encoder, decoder, scratch) = data, networks
    k = settings["n_subsets"]
    subsets = assign_subsets(len(x), k, rng) if ids is None else hash_subsets(ids, k, rng)
    known = classes >= 0  # a row of a class that was not released is in no subset
    rows = SubsetRows(x[known], classes[known], n_classes, subsets[known], k)
    training = EncoderTraining(
        key=bytes(rng.random_bytes(16)), steps=settings["pretrain_steps"], batch_size=settings["batch_size"],
        learning_rate=settings["pretrain_lr"], gradient_bound=settings["gradient_bound"],
        refine_steps=settings["refine_steps"], device=settings["device"], n_jobs=settings["n_jobs"],
    )  # fmt: skip
    parameters = pretrain_encoders(
        encoder.cpu(), scratch.cpu(), rows, likelihood, training, chunk=chunks[0], progress=settings["progress"]
    )
    stack = EncoderStack(encoder, parameters, rows, likelihood, training, policy=settings["encoder_update"])
    return train_decoder(
        decoder,
        stack,
        settings["receipt"].cover(subset_plan(settings, plan.noise_multipliers["decoder"])),
        rng,
        learning_rate=settings["lr"],
        averaging=settings["averaging"],
        chunk=chunks[1],
        device=settings["device"],
        progress=settings["progress"],
        progress_text=f"(epsilon {plan.epsilon:.3g})",
    )
