"""The cost of DP2-VAE's stage 1: all encoders together, in a process whose peak memory is told, and one by one."""

from __future__ import annotations

import copy
from time import perf_counter, process_time

import numpy as np

__all__ = ["dp2vae_speed"]

_ROWS, _BATCH, _LATENT = 24, 8, 20


def dp2vae_speed(*, n_subsets=2500, steps=20, data=None, quick=False):
    """Yield the cost of stage 1 on MNIST, 24 rows a subset: all encoders together, and 50 one after another.

    Both ways train the same networks: the encoder of the default architecture, and the decoder that is thrown away.

    Parameters
    ----------
    n_subsets : int, default=2500
    steps : int, default=20
        Of each encoder.
    data : str or path, default=None
        Folder of the data.
    quick : bool, default=False
        20 encoders together, 10 one after another.

    Yields
    ------
    dict
        method, encoders, milliseconds (of processor time, an encoder and step), seconds (of all, on this machine), and
        of all together peak_gib (the largest resident size of a process that does this alone, interpreter and rows
        included), of one by one `ratio`, its milliseconds over those of all together.
    """
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    k = 20 if quick else n_subsets
    rows, labels = _load(data, _ROWS * k)
    # a fresh process: the peak of this one may be that of what it did before
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        together = pool.submit(_together, rows, labels, k, steps).result()
    yield {"method": "together", "encoders": k, **together}
    few = min(10 if quick else 50, k)
    alone = _one_by_one(rows, few, steps)
    ratio = alone["milliseconds"] / together["milliseconds"]
    yield {"method": "one after another", "encoders": few, **alone, "ratio": ratio}


def _load(data, n_rows):
    from skdpgen.datasets import load_mnist

    bunch = load_mnist(data)
    return bunch.data[:n_rows], bunch.target[:n_rows]


def _networks():
    from skdpgen.nn._dp2vae import AUXILIARY, make_decoder, make_encoder

    shape = {"image_shape": (28, 28)}
    encoder = make_encoder("patches", 784, 10, _LATENT, **shape)
    return encoder, make_decoder("patches", 784, 10, _LATENT, **shape, **AUXILIARY)


def _together(images, labels, k, steps):
    """Seconds, and the peak of this process."""
    from skdpgen.dpsgd._subsets import assign_subsets
    from skdpgen.nn._dp2vae import LIKELIHOODS
    from skdpgen.nn._dp2vae_training import EncoderTraining, SubsetRows, default_chunk, pretrain_encoders
    from skdpgen.utils.noise import make_noise_generator

    rng, likelihood, (encoder, scratch) = make_noise_generator(), LIKELIHOODS["bernoulli"](), _networks()
    x = (images / 255).astype(np.float32)
    rows = SubsetRows(x, labels.astype(np.int64), 10, assign_subsets(len(x), k, rng), k)
    sizes = [sum(p.numel() for p in net.parameters()) for net in (encoder, scratch)]
    chunk = default_chunk(*sizes, "cpu", 4 * 2**30, _BATCH, 784)[0]
    training = EncoderTraining(bytes(rng.random_bytes(16)), steps, _BATCH, learning_rate=1e-3, gradient_bound=1.0)
    pretrain_encoders(encoder, scratch, rows.part(0, 1), likelihood, training, chunk=chunk)  # libraries load
    start, started = perf_counter(), process_time()
    pretrain_encoders(encoder, scratch, rows, likelihood, training, chunk=chunk)
    return {**_lap(start, started, k * steps), "peak_gib": _peak_gib()}


def _one_by_one(images, few, steps):
    encoder, scratch = _networks()
    x = (images / 255).astype(np.float32)
    _train_one(encoder, scratch, x[:_ROWS], 3)  # libraries load
    start, started = perf_counter(), process_time()
    for i in range(few):
        _train_one(encoder, scratch, x[_ROWS * i : _ROWS * (i + 1)], steps)
    return _lap(start, started, few * steps)


def _lap(start, started, trained):
    milliseconds = 1e3 * (process_time() - started) / trained
    return {"milliseconds": milliseconds, "seconds": round(perf_counter() - start, 2)}


def _peak_gib():
    """Largest resident size of this process so far."""
    import sys

    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**30 if sys.platform == "darwin" else peak / 2**20


def _train_one(encoder, decoder, x, steps):
    """One encoder as one would write it: modules, autograd, clipping and Adam of torch."""
    import torch

    x, label = torch.from_numpy(x), torch.zeros(_BATCH, 10)
    encoder, decoder = copy.deepcopy(encoder), copy.deepcopy(decoder)
    parameters = [*encoder.parameters(), *decoder.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-3)
    for _ in range(steps):
        rows = x[torch.randint(len(x), (_BATCH,))]
        mean, log_variance = encoder(rows, label).chunk(2, dim=1)
        latent = mean + torch.exp(0.5 * log_variance) * torch.randn_like(mean)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(decoder(latent, label), rows, reduction="sum")
        loss = (loss + 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum()) / _BATCH
        optimizer.zero_grad()
        loss.backward()
        for net in (encoder, decoder):
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
