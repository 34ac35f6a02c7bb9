"""Where DP2-VAE's networks start: from synthetic rows of released moments, which are free to train on."""

from __future__ import annotations

import copy

import numpy as np

from ..data.frames import FrameRows
from ..generators.components import spread_components
from ..generators.gaussians import full_covariances
from ..mechanisms import add_gaussian, histogram
from ._array_model import fit_array_model
from ._frame_model import fit_frame_model

__all__ = ["release_facts", "start_networks"]

_ROWS = 40_000
_RATE, _BATCH = 3e-3, 128
# How finely numeric columns are cut where there are no moments to plan for: the noise at which most bins are taken.
_FINEST = 1e-12


def release_facts(rows, settings, plan, rng, neighboring, stream):
    """Make the releases before the training.

    Parameters
    ----------
    rows : ArrayRows or FrameRows
    settings : dict
    plan : FitPlan
        Charged.
    rng : NoiseGenerator
    neighboring : str
    stream : numpy.random.Generator
        For synthetic rows.

    Returns
    -------
    codec : ArrayCodec or FrameCodec
    counts : array of shape (n_classes,)
        Released.
    synthetic : tuple or None
        Rows drawn by the released moments, of what latents (None where the model has none), of what classes.
    """
    noise = plan.noise_multipliers
    if settings["start"] == "moments":
        started = {"prior": None, "decoder": "released", "n_components": "auto", "progress": settings["progress"]}
        if isinstance(rows, FrameRows):
            model = fit_frame_model(rows, started, plan, rng, neighboring, stream)
            counts = np.maximum(model.particles.class_counts, 0.0)
            drawn = spread_components(_ROWS, model.component_weights, stream)
            return model.codec, counts, (model.codec.one_hot(model.codes(drawn, stream)), None, drawn)
        model = fit_array_model(rows, started, plan, rng, neighboring, stream)
        drawn = spread_components(_ROWS, model.component_weights, stream)
        x, latents = rows_and_latents(model.generator, drawn, settings["n_components"], stream)
        low, high = model.codec.box
        return model.codec, model.row_count * model.class_ratio, ((x - low) / (high - low), latents, drawn)
    if isinstance(rows, FrameRows):
        codec, _ = rows.learn({**noise, "moments": _FINEST}, plan.extra_delta, rng, neighboring)
        classes = codec.codes(rows.frame)[1]
    else:
        sides = None if rows.image_shape is None else min(rows.image_shape[:2])
        codec = rows.learn(noise, plan.extra_delta, rng, neighboring, n_frequencies=sides)
        classes = rows.codes
    counts = np.ones(1)
    if "counts" in noise:
        cells = np.zeros(len(rows), dtype=np.int64) if classes is None else classes
        counts = add_gaussian(histogram(cells, max(codec.n_classes, 1)), noise["counts"], rng, neighboring)
    return codec, counts, None


def rows_and_latents(generator, classes, n_latent, rng):
    """Rows of a released generator, and the latents that gave them.

    Parameters
    ----------
    generator : LinearGenerator
    classes : int array of shape (n_rows,)
    n_latent : int
    rng : numpy.random.Generator

    Returns
    -------
    x : float64 array of shape (n_rows, n_features)
        As `LinearGenerator.sample` draws them.
    latents : float32 array of shape (n_rows, n_latent)
        Independent standard normals: positions along the widest directions of the row's class, widest first. What
        lies along the others is left to chance; latents beyond the directions that there are say nothing.
    """
    covariances = full_covariances(generator.mixture)
    width = covariances.shape[1]
    components = generator.draw_components(classes, rng)
    drawn = rng.standard_normal((len(components), max(width, n_latent)))
    x = np.empty((len(components), len(generator.low)))
    for k in np.unique(components):
        values, vectors = np.linalg.eigh(covariances[k])
        root = (vectors * np.sqrt(np.maximum(values, 0.0)))[:, ::-1]
        where = np.flatnonzero(components == k)
        for part in np.array_split(where, -(-len(where) // 8192)):
            x[part] = generator.decode_clipped(k, drawn[part, :width] @ root.T, rng)
    return x, drawn[:, :n_latent].astype(np.float32)


def start_networks(encoder, decoder, scratch, synthetic, n_classes, likelihood, settings):
    """Train the networks on synthetic rows, in place; return the decoder that stage 1 starts from and throws away.

    Parameters
    ----------
    encoder, decoder : Module
    scratch : Module or None
        None: stage 1 starts from a copy of the decoder.
    synthetic : tuple or None
        From `release_facts`; None trains nothing.
    n_classes : int
    likelihood : object with ``gradient(output, x)``
    settings : dict
    """
    from ..nn._dp2vae_training import train_on_pairs, train_together

    if synthetic is not None and settings["start_steps"]:
        x, latents, codes = synthetic
        x = np.ascontiguousarray(x, dtype=np.float32)
        options = {
            "steps": settings["start_steps"], "learning_rate": _RATE, "batch_size": _BATCH, "seed": settings["seed"],
            "device": settings["device"],
        }  # fmt: skip
        decoders = [decoder] if scratch is None else [decoder, scratch]
        if latents is not None:
            train_on_pairs(
                encoder, decoders, (x, latents, codes), n_classes, likelihood, **options, progress=settings["progress"]
            )
        else:
            train_together(encoder, decoder, x, codes, n_classes, likelihood, **options)
    return copy.deepcopy(decoder) if scratch is None else scratch
