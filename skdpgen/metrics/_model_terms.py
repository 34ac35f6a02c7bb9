"""How well a fitted model explains rows: the error of its reconstruction, and the two terms of the ELBO."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..utils.foreign_tables import to_pandas
from ._samples import column_kind, to_numbers


def reconstruction_error(model, X):
    """Error of rows that went through a model's latent space and back.

    Parameters
    ----------
    model : fitted estimator with `transform` and `inverse_transform`
        ``DPPCA``, ``P3GMSynthesizer``, a pipeline of transformers.
    X : array of shape (n_rows, n_features) or DataFrame

    Returns
    -------
    error : float
        Arrays: root of the mean squared error, in the units of X. Frames: mean over columns of the root mean squared
        error over the standard deviation (numbers) and of the share of rows that came back as another value
        (categories), so that a constant guess of the mean scores 1 on a number.

    Notes
    -----
    **Leak.** Computed from the rows without protection, and no budget is charged: if the rows are private, do not
    publish it.
    """
    X = to_pandas(X)
    back = to_pandas(model.inverse_transform(model.transform(X)))
    if not hasattr(X, "columns"):
        X, back = np.asarray(X, dtype=np.float64), np.asarray(back, dtype=np.float64)
        return float(np.sqrt(np.mean(np.square(X - back))))
    if not hasattr(back, "columns"):
        back = type(X)(np.asarray(back), columns=X.columns)
    errors = []
    for name in X.columns:
        if column_kind(X[name]) == "category":
            one, other = (
                column.astype(object).where(column.notna(), None).to_numpy() for column in (X[name], back[name])
            )
            errors.append(float(np.mean([a != b for a, b in zip(one, other)])))
            continue
        one, other = to_numbers(X[name]), to_numbers(back[name])
        known = np.isfinite(one) & np.isfinite(other)
        spread = one[known].std() if known.any() else 0.0
        if spread > 0:
            errors.append(float(np.sqrt(np.mean(np.square(one[known] - other[known]))) / spread))
    return float(np.mean(errors)) if errors else 0.0


class ELBOTerms(NamedTuple):
    """Terms of the evidence lower bound, means over the rows.

    Attributes
    ----------
    reconstruction : float
        Expected log-likelihood of a row given its latent.
    divergence : float
        KL divergence of the encoder's distribution from the prior, at least 0 up to the error of its estimate.
    elbo : float
        reconstruction - divergence; at most the log-likelihood.
    """

    reconstruction: float
    divergence: float
    elbo: float


def elbo_terms(X, encode, log_likelihood, prior=None, *, n_monte_carlo=16, random_state=None):
    """Reconstruction and divergence of a variational autoencoder on rows.

    Parameters
    ----------
    X : array of shape (n_rows, n_features)
    encode : callable
        ``encode(X) -> (mean, log_variance)``, arrays of shape (n_rows, n_latent): the encoder's Gaussian.
    log_likelihood : callable
        ``log_likelihood(X, Z) -> array of shape (n_rows,)``: of each row given its latent in Z (n_rows, n_latent).
    prior : object with ``log_prob(Z)``, default=None
        Log-density of latents, for example a ``GaussianMixtureParameters``; its divergence is estimated from the same
        draws. None is the standard normal, whose divergence is exact.
    n_monte_carlo : int, default=16
        Draws of the latent a row.
    random_state : int, Generator or None, default=None
        Of the draws.

    Returns
    -------
    ELBOTerms
        ``reconstruction``, ``divergence`` and ``elbo``, a named tuple of floats.

    Notes
    -----
    **Leak.** Computed from the rows without protection, and no budget is charged: if the rows are private, do not
    publish it.

    The method ``score`` of a fitted synthesizer gives the sum of both terms. Its network gives each, as in the example:
    of `PriVAESynthesizer` and `DPVAESynthesizer` it is ``model_.module``, whose latents are held to a standard normal
    unless `prior` says otherwise; of ``P3GMSynthesizer(decoder="net")`` it is ``model_.generator.module``, with
    `decoder` in the place of `decode` and ``prior=model_.generator.mixture``. A P3GM that was loaded from a file has no
    encoder variance, and no such network.

    References
    ----------
    D. Kingma, M. Welling, "Auto-encoding variational Bayes", ICLR 2014, equation 3.

    Examples
    --------
    >>> import numpy as np
    >>> import torch
    >>> from skdpgen import DPSGD, DPVAESynthesizer
    >>> from skdpgen.metrics import elbo_terms
    >>> X = np.tanh(np.random.default_rng(0).normal(size=(200, 2)))
    >>> vae = DPVAESynthesizer(10.0, bounds=(-1, 1), n_components=2, training=DPSGD(20), random_state=0).fit(X)
    >>> net = vae.model_.module.requires_grad_(False)
    >>> def encode(rows):
    ...     return [part.numpy() for part in net.encode(torch.tensor(rows, dtype=torch.float32))]
    >>> def log_likelihood(rows, Z):
    ...     rows, Z = (torch.tensor(values, dtype=torch.float32) for values in (rows, Z))
    ...     return net.likelihood.log_prob(net.decode(Z), rows).numpy()
    >>> scaled = vae.model_.codec.scale(X)  # the network's rows
    >>> terms = elbo_terms(scaled, encode, log_likelihood, n_monte_carlo=64, random_state=0)
    >>> terms.divergence > 0, terms.elbo == terms.reconstruction - terms.divergence
    (True, True)
    """
    X = np.asarray(X)
    mean, log_variance = (np.asarray(part, dtype=np.float64) for part in encode(X))
    if mean.shape != log_variance.shape or mean.ndim != 2 or len(mean) != len(X):
        raise ValueError(f"encode gave shapes {mean.shape} and {log_variance.shape} for {len(X)} rows")
    if n_monte_carlo < 1:
        raise ValueError(f"n_monte_carlo must be at least 1; got {n_monte_carlo}")
    rng = np.random.default_rng(random_state)
    reconstruction = divergence = 0.0
    if prior is None:
        divergence = 0.5 * float((np.exp(log_variance) + mean**2 - 1 - log_variance).sum(axis=1).mean())
    for _ in range(n_monte_carlo):
        noise = rng.standard_normal(mean.shape)
        Z = mean + np.exp(0.5 * log_variance) * noise
        reconstruction += float(np.mean(log_likelihood(X, Z))) / n_monte_carlo
        if prior is not None:
            own = -0.5 * (noise**2 + log_variance + np.log(2 * np.pi)).sum(axis=1)
            divergence += float(np.mean(own - prior.log_prob(Z))) / n_monte_carlo
    return ELBOTerms(reconstruction, divergence, reconstruction - divergence)
