"""DP2-VAE's networks, the released model, which holds a decoder and no encoder, and the fit that makes it."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit, logsumexp

from ..data.frames import FrameRows
from ..generators.leading import LeadingDirections
from ..utils.callers import warn_user
from ..utils.file_checks import check_whole
from ..utils.printing import listed
from ._frame_model import FrameModel
from ._generator_model import training_rows
from ._moment_start import draw_components, draw_rows, learn_facts
from ._phases import MomentSettings
from ._released import CHUNK_ROWS, NOT_SAVED, ReleasedModel, level_probabilities
from ._training import sizes_by_counts

# Draws of the prior that estimate the likelihood of a row; time and memory of a score grow with them.
_SCORE_LATENTS = 256
# Stage 1 and refreshments: the rate of Adam, and the steps of one refreshment. Stage 2: the decay of the exponential
# average of the decoder that is released.
_ENCODER_RATE, _REFINE_STEPS, _AVERAGING = 1e-3, 1, 0.99
# How the networks are trained on synthetic rows of released moments.
_INITIAL_RATE, _INITIAL_BATCH = 3e-3, 128


# ---- networks -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class NetworkSettings:
    """What the networks are."""

    architecture: str
    # encoder, decoder: modules that the user gave as templates
    encoder: object | None
    decoder: object | None
    n_components: int  # number of latent dimensions
    image_shape: tuple | None
    likelihood: str
    seed: int  # of the initialisation

    @property
    def resolved_architecture(self):
        """Name of the architecture: that of images where rows are images."""
        name = self.architecture
        if name == "auto":
            return "patches" if self.image_shape is not None else "mlp"
        if name != "mlp" and self.image_shape is None:
            raise ValueError(f"architecture={name!r} is for images: give image_shape=")
        return name

    @property
    def shape(self):
        """Shape of images as a tuple of Python's integers, or None."""
        return None if self.image_shape is None else tuple(int(side) for side in self.image_shape)


def make_networks(settings, n_features, n_classes, n_outputs):
    """Encoder and decoder of the settings: initialised by the seed, or copies of the user's own."""
    from ..dpsgd._seeding import torch_seeded
    from ..nn._dp2vae import make_decoder, make_encoder

    with torch_seeded(settings.seed):
        name, kind = settings.resolved_architecture, {"image_shape": settings.shape}
        encoder, decoder = settings.encoder, settings.decoder
        if encoder is None:
            encoder = make_encoder(name, n_features, n_classes, settings.n_components, **kind)
        if decoder is None:
            decoder = make_decoder(name, n_outputs, n_classes, settings.n_components, **kind)
    # deepcopy: a template of the user's keeps its parameters
    return copy.deepcopy(encoder), copy.deepcopy(decoder)


def make_auxiliary(settings, n_outputs, n_classes):
    """The auxiliary decoder that stage 1 trains beside each encoder and drops; None where it is a copy of the decoder.

    It is trained on the rows of one subset, 24 of 60,000: of "patches" a small one serves as well, and thousands of
    them take a fraction of the time.
    """
    from ..dpsgd._seeding import torch_seeded
    from ..nn._dp2vae import AUXILIARY, make_decoder

    if settings.decoder is not None or settings.resolved_architecture != "patches":
        return None
    with torch_seeded(settings.seed + 1):
        return make_decoder(
            "patches", n_outputs, n_classes, settings.n_components, image_shape=settings.shape, **AUXILIARY
        )


def likelihood_of(settings, rows):
    """Name of the likelihood."""
    if isinstance(rows, FrameRows):
        return "table"
    if settings.likelihood != "auto":
        return settings.likelihood
    return "gaussian" if settings.image_shape is None else "bernoulli"


# ---- the released model -------------------------------------------------------------------------------------------
class DP2VAEModel(ReleasedModel):
    """Released state: codec and decoder.

    `decoder`: (latent, one-hot class) to what the likelihood takes; on the CPU, in evaluation mode.
    `description`: parameters of `make_decoder`; None for a module that the user gave.
    `likelihood`: "bernoulli" or "gaussian" or "table".
    `component_weights` (n_components,): of classes, where the model is conditional on them, else one.
    `leading`: of images that start from released moments: the Gaussians whose means the decoder shifts.
    """

    def __init__(self, codec, decoder, description, likelihood, n_latent, row_count, component_weights, leading=None):
        super().__init__(codec, row_count, component_weights)
        self.leading = leading
        # what networks are conditional on: classes, or the Gaussians of each
        self.n_labels = codec.n_classes if leading is None else leading.n_labels(codec.n_classes)
        self.decoder, self.description, self.likelihood, self.n_latent = decoder, description, likelihood, n_latent

    def draw(self, components, rng):
        """Scaled rows, or codes of levels, of given classes."""
        if self.leading is not None:
            return self.leading.sample(components, rng, self._shift)[0]
        latent = rng.standard_normal((len(components), self.n_latent)).astype(np.float32)
        starts = range(0, len(latent), CHUNK_ROWS)
        output = np.concatenate(
            [self._decode(latent[i : i + CHUNK_ROWS], components[i : i + CHUNK_ROWS]) for i in starts]
        )
        if self.likelihood == "table":
            return self.draw_levels(level_probabilities(output, self.codec.n_levels), rng)
        if self.likelihood == "gaussian":
            mean, log_scale = np.split(output, 2, axis=1)
            unit = mean + np.exp(np.clip(log_scale, -5.0, 1.0)) * rng.standard_normal(mean.shape)
        else:
            unit = expit(output)
        return self.codec.box.from_unit(np.clip(unit, 0.0, 1.0))

    def _decode(self, latent, components, network=None):
        """Output of the decoder, or of a part of it, float32."""
        import torch

        labels = np.zeros((len(latent), 0), dtype=np.float32)
        if self.n_labels:
            labels = np.eye(self.n_labels, dtype=np.float32)[components]
        with torch.inference_mode():
            return (network or self.decoder)(torch.from_numpy(latent), torch.from_numpy(labels)).numpy()

    def _shift(self, latent, label):
        """What the network adds to scaled images of a component."""
        return self._decode(latent, np.full(len(latent), label), self.decoder.network) * self.codec.box.width

    def score_samples(self, X, y=None):
        """Log-likelihood of each row by latents drawn from the prior: a bound from below, on average."""
        x, classes = self._unit_rows(X, y)
        latent = np.random.default_rng(0).standard_normal((_SCORE_LATENTS, self.n_latent)).astype(np.float32)
        n_labels, n_classes = max(self.n_labels, 1), max(self.codec.n_classes, 1)
        scores = np.empty((len(x), n_labels))
        for k in range(n_labels):
            output = self._decode(latent, np.full(len(latent), k)).astype(np.float64)
            scores[:, k] = logsumexp(self._log_prob(output, x), axis=1) - np.log(len(latent))
        if n_labels > n_classes:  # several Gaussians of each class
            weights = self.leading.generator.mixture.weights.reshape(n_classes, -1)
            weights = np.log(np.maximum(weights / weights.sum(axis=1, keepdims=True), 1e-300))
            scores = logsumexp(scores.reshape(len(x), n_classes, -1) + weights, axis=2)
        whole = logsumexp(scores + np.log(np.maximum(self.class_ratio, 1e-300)), axis=1)
        if classes is None or not self.codec.n_classes:
            return whole
        return np.where(classes < 0, whole, scores[np.arange(len(x)), np.maximum(classes, 0)])

    def _log_prob(self, output, x):
        """Log-probability of rows under each decoded latent, shape (n_rows, n_latents): matrix products alone."""
        if self.likelihood == "table":
            return x @ np.log(np.maximum(level_probabilities(output, self.codec.n_levels), 1e-300)).T
        if self.likelihood == "bernoulli":
            return x @ output.T - np.logaddexp(0.0, output).sum(axis=1)
        mean, log_scale = np.split(output, 2, axis=1)
        log_scale = np.clip(log_scale, -5.0, 1.0)
        weight = np.exp(-2 * log_scale)
        squares = (x * x) @ weight.T - 2 * x @ (weight * mean).T + (weight * mean * mean).sum(axis=1)
        return -0.5 * squares - (log_scale + 0.5 * np.log(2 * np.pi)).sum(axis=1)

    def _unit_rows(self, X, y):
        """Rows as the decoder models them, and class codes or None; of y that X lacks, the middle of the bounds."""
        x, classes = self.vectors_like_fit(X, y)
        return (x if self.kind == "frame" else self.codec.box.to_unit(x).astype(np.float32)), classes

    def _state(self):
        if self.description is None:
            raise ValueError(f"a model with your own decoder module {NOT_SAVED}")
        network, start = self.decoder, {}
        if self.leading is not None:
            network, start = self.decoder.network, self.leading.to_state()
        return {
            "description": self.description,
            "decoder": {name: p.detach().numpy().copy() for name, p in network.named_parameters()},
            "likelihood": self.likelihood,
            "n_latent": self.n_latent,
            **start,
        }

    @classmethod
    def _restore(cls, codec, state):
        import torch

        from ..nn._dp2vae import make_decoder
        from ..nn._networks import check_module_arrays

        described = dict(state["description"])
        if described["image_shape"] is not None:
            described["image_shape"] = tuple(described["image_shape"])
        check_module_arrays(lambda: make_decoder(**described), state["decoder"])
        decoder = make_decoder(**described)
        parameters = {name: torch.from_numpy(np.array(p)) for name, p in state["decoder"].items()}
        leading = None
        if "generator" in state:
            leading = _restore_leading(state, codec)
            (decoder,) = released_decoders(leading, decoder)
            parameters = {f"network.{name}": p for name, p in parameters.items()} | dict(decoder.named_buffers())
        decoder.load_state_dict(parameters)
        rest = (state["likelihood"], state["n_latent"], state["row_count"], state["component_weights"])
        return cls(codec, decoder.eval(), state["description"], *rest, leading)


def _restore_leading(state, codec):
    """The released Gaussians of a file; ValueError where they do not fit its decoder."""
    leading, described = LeadingDirections.from_state(state), state["description"]
    generator, n_latent = leading.generator, check_whole(state["n_latent"], "n_latent", 1)
    fits = (
        state["likelihood"] == "bernoulli"
        and leading.n_latent == n_latent
        and leading.n_components == max(codec.n_classes, 1) * generator.per_class
        and (codec.n_classes > 0 or generator.per_class == 1)
        and len(generator.box.low) == described["n_outputs"] == codec.n_features
        and (described["n_latent"], described["n_classes"]) == (n_latent, leading.n_labels(codec.n_classes))
    )
    if not fits:
        raise ValueError("the released Gaussians do not fit the decoder")
    return leading


def released_decoders(leading, *networks):
    """Decoders that shift the means of released Gaussians by networks, whose last layers become zero."""
    import torch

    from ..nn._dp2vae import ReleasedDecoder

    columns = [torch.from_numpy(part) for part in leading.columns()]  # which they share
    return [ReleasedDecoder(network, *columns) for network in networks]


# ---- the fit ------------------------------------------------------------------------------------------------------
def fit_dp2vae_model(rows, settings, fit):
    """Make all releases of DP2-VAE: facts, then moments or counts, then the steps of the decoder."""
    start, basis = None, {}
    if settings.initial_steps is not None:
        start = MomentSettings(progress=settings.progress, features=settings.features)
    elif not isinstance(rows, FrameRows) and rows.image_shape is not None:
        basis = {"n_frequencies": min(rows.image_shape[:2])}
    codec, counts, moments = learn_facts(rows, fit, start, **basis)
    row_count, weights, step_size = sizes_by_counts(counts, rows, fit, moments)
    plan = subset_plan(settings, fit)
    _warn_of_what_is_rare(settings.subsets.n_subsets, codec, weights, step_size.value, rows.unit)
    x, classes, _ = training_rows(rows, codec)
    width = x.shape[1]
    likelihood, name, n_outputs = _make_likelihood(rows, settings.networks, codec, width)
    leading, n_labels = None, codec.n_classes
    if shifts_gaussians(rows, settings):
        leading = LeadingDirections.of(moments.generator, settings.networks.n_components)
        classes, n_labels = leading.nearest(x, classes), leading.n_labels(codec.n_classes)
    encoder, decoder = make_networks(settings.networks, width, n_labels, n_outputs)
    auxiliary = make_auxiliary(settings.networks, n_outputs, n_labels)
    if leading is not None:
        auxiliary = copy.deepcopy(decoder) if auxiliary is None else auxiliary
        decoder, auxiliary = released_decoders(leading, decoder, auxiliary)
    if not fit.starts_training:
        auxiliary = _restore_networks(encoder, decoder, auxiliary, fit.checkpoint)
    else:
        synthetic = None if moments is None else _synthetic_rows(moments, leading, settings, fit)
        auxiliary = initialise_networks(encoder, decoder, auxiliary, synthetic, (width, n_labels), likelihood, settings)
    networks = (encoder, decoder, auxiliary)
    noise = _train((x, classes, rows), networks, likelihood, n_labels, plan, settings, fit)
    description = None
    if settings.networks.decoder is None:
        description = {
            "architecture": settings.networks.resolved_architecture,
            "n_outputs": n_outputs,
            "n_classes": n_labels,
            "n_latent": settings.networks.n_components,
            "image_shape": None if settings.networks.shape is None else list(settings.networks.shape),
        }
    n_latent = settings.networks.n_components
    model = DP2VAEModel(codec, decoder.cpu().eval(), description, name, n_latent, row_count, weights, leading)
    model.gradient_noise = noise
    return model


def shifts_gaussians(rows, settings):
    """Whether the decoder is that of the released Gaussians with a network that shifts their means; public.

    So it is for images that start from released moments, unless the user gives a decoder.
    """
    networks = settings.networks
    images = likelihood_of(networks, rows) == "bernoulli" and rows.image_shape is not None
    return images and settings.initial_steps is not None and networks.decoder is None


def may_cut_classes(rows, settings):
    """Whether these Gaussians may be those of sub-clusters of the classes, as labels of the networks; public.

    Your own encoder takes the labels of the classes.
    """
    return shifts_gaussians(rows, settings) and rows.may_have_subclusters and settings.networks.encoder is None


def subset_plan(settings, fit):
    """The plan of stage 2, covered by the charge."""
    return fit.cover(replace(settings.subsets, noise_multiplier=fit.noise["decoder"], unit=fit.plan.unit))


def _restore_networks(encoder, decoder, auxiliary, checkpoint):
    """Set the networks to those in a checkpoint; return the auxiliary decoder of stage 1, as it was before it."""
    from ..nn._dp2vae_training import restore_networks

    auxiliary = copy.deepcopy(decoder) if auxiliary is None else auxiliary
    restore_networks(checkpoint, {"encoder": encoder, "decoder": decoder, "auxiliary": auxiliary})
    return auxiliary


def _synthetic_rows(model, leading, settings, fit):
    """Rows drawn by released moments, which are free to train on: the rows, their latents or None, their classes."""
    if isinstance(model, FrameModel):
        x, drawn = draw_rows(model, fit.stream)
        return x, None, drawn
    drawn = draw_components(model, fit.stream)
    to_unit = model.codec.box.to_unit
    if leading is None:
        leading = LeadingDirections.of(model.generator, settings.networks.n_components)
        x, latents, _ = leading.sample(drawn, fit.stream)
        return to_unit(x), latents, drawn
    x, latents, components = leading.unmoved().sample(drawn, fit.stream)
    return to_unit(x), latents, components


def initialise_networks(encoder, decoder, auxiliary, synthetic, sizes, likelihood, settings):
    """Initialise the networks by synthetic rows, or by public facts; return the auxiliary decoder of stage 1.

    `auxiliary`: where it is None, stage 1 begins with a copy of the decoder. `synthetic`: from `_synthetic_rows`. None:
    nothing is trained, and the latents of the package's encoders are spread. `sizes`: numbers of columns and of classes
    of a row.
    """
    from ..nn._dp2vae import ReleasedDecoder, spread_latents
    from ..nn._dp2vae_training import train_on_pairs, train_together

    n_features, n_classes = sizes
    if synthetic is not None:
        x, latents, codes = synthetic
        x = np.ascontiguousarray(x, dtype=np.float32)
        options = {
            "steps": settings.initial_steps, "learning_rate": _INITIAL_RATE, "batch_size": _INITIAL_BATCH,
            "seed": settings.networks.seed, "device": settings.device,
        }  # fmt: skip
        decoders = [decoder] if auxiliary is None else [decoder, auxiliary]
        if isinstance(decoder, ReleasedDecoder):  # which decodes these rows already
            decoders = []
        if latents is not None:
            train_on_pairs(
                encoder, decoders, (x, latents, codes), n_classes, likelihood, **options, progress=settings.progress
            )
        else:
            train_together(encoder, decoder, x, codes, n_classes, likelihood, **options)
    elif settings.networks.encoder is None:
        spread_latents(encoder, n_features, n_classes, settings.networks.seed)
    return copy.deepcopy(decoder) if auxiliary is None else auxiliary


def _make_likelihood(rows, settings, codec, width):
    from ..nn._dp2vae import LIKELIHOODS

    name = likelihood_of(settings, rows)
    kind = LIKELIHOODS[name]
    return (kind(codec.n_levels.tolist()) if name == "table" else kind()), name, kind.outputs_per_column * width


def _warn_of_what_is_rare(n_subsets, codec, weights, counted, unit):
    """Warn, by released counts alone, of empty subsets and of classes that most of them do not have.

    `counted` is the released number of rows, or of units where each of them counts 1.
    """
    if (empty := math.exp(-counted / n_subsets)) > 0.05:
        what = "rows" if unit is None or unit.weighting == "rows" else "units"
        warn_user(
            f"n_subsets={n_subsets} for about {counted:.0f} {what}: about {empty:.0%} of the subsets are empty and "
            "contribute nothing but noise"
        )
    if codec.n_classes > 1:
        absent = np.exp(-counted * weights / weights.sum() / n_subsets)
        if rare := [c for c, share in zip(codec.classes, absent) if share > 0.5 >= empty]:
            warn_user(
                f"most of the {n_subsets} subsets have no row of the classes {listed(rare, 5)}: their encoders learn "
                "nothing of them; lower n_subsets"
            )


def _train(data, networks, likelihood, n_classes, plan, settings, fit):
    """Stage 1 and stage 2; the encoders are gone when it returns. Returns what the card says of the noise."""
    from ..dpsgd._subsets import assign_subsets, hash_subsets
    from ..nn._dp2vae_training import EncoderStack, EncoderTraining, SubsetRows, pretrain_encoders, train_decoder

    (x, classes, private), (encoder, decoder, auxiliary) = data, networks
    ids, units = private.ids, private.unit_codes
    k, rng = settings.subsets.n_subsets, fit.rng
    stack = None
    if plan.steps_taken < plan.steps:  # of a fit that goes on, there may be no step left
        # A fit that goes on assigns subsets and trains encoders anew: nothing of them was written.
        subsets = assign_subsets(len(x), k, rng, units=units) if ids is None else hash_subsets(ids, k, rng)
        known = classes >= 0  # a row of a class that was not released is in no subset
        counted = None if private.unit_sizes is None else units[known]  # where each unit counts 1
        rows = SubsetRows(x[known], classes[known], n_classes, subsets[known], k, units=counted)
        training = EncoderTraining(
            key=bytes(rng.random_bytes(16)), steps=settings.pretrain_steps, batch_size=settings.batch_size,
            learning_rate=_ENCODER_RATE, gradient_bound=settings.subsets.gradient_bound, refine_steps=_REFINE_STEPS,
            device=settings.device, n_jobs=None,  # joblib's context says how many
        )  # fmt: skip
        parameters = pretrain_encoders(
            encoder.cpu(), auxiliary.cpu(), rows, likelihood, training, chunk=settings.chunks[0],
            progress=settings.progress,
        )  # fmt: skip
        stack = EncoderStack(encoder, parameters, rows, likelihood, training, policy=settings.subsets.encoder_update)
    return train_decoder(
        decoder,
        stack,
        plan,
        rng,
        learning_rate=settings.learning_rate,
        averaging=_AVERAGING,
        chunk=settings.chunks[1],
        device=settings.device,
        progress=settings.progress,
        progress_text=f"(epsilon {fit.plan.epsilon:.3g})",
        checkpoint=fit.checkpoint,
        initial={"encoder": encoder, "auxiliary": auxiliary},
    )
