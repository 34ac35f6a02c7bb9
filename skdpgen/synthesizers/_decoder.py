"""P3GM's second phase: a decoder (and encoder variance) trained by DP-SGD on the ELBO, warm-started for free."""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from ..generators.gaussians import LatentSpace
from ..mixture import GaussianMixtureParameters
from ..utils.file_checks import check_mixture

__all__ = ["NetGenerator", "check_network", "decoder_plan", "train_decoder"]

_WARM_BATCH = 256


class NetGenerator:
    """Sample a latent of the row's component and decode it through the trained network.

    Parameters
    ----------
    space : LatentSpace
    mixture : GaussianMixtureParameters
    decode : callable
        Latents to the mean of their rows (probabilities of levels for tables), shape (n_samples, n_features).
    layers : list of (weight, bias) or None
        Of the decoder, where it is linear layers with ReLU between them.
    widths : array of int or None
        Number of levels of each block; None for rows of [0, 1].
    likelihood : {"bernoulli", "gaussian", "table"}

    Attributes
    ----------
    noise : (str, bool) or None
        Source of the noise of its training, in words, and whether it was private.
    """

    noise = None

    def __init__(self, space, mixture, layers, likelihood, widths=None, module=None):
        self.space, self.mixture, self.layers, self.module = space, mixture, layers, module
        self.likelihood, self.widths = likelihood, widths

    def sample(self, components, rng):
        """Draw mean rows of shape (n_samples, n_features), float32, for rows of given components."""
        latent = np.empty((len(components), self.mixture.means.shape[1]), dtype=np.float32)
        for k in np.unique(components):
            where = np.flatnonzero(components == k)
            counts = np.zeros(self.mixture.n_components, dtype=np.int64)
            counts[k] = len(where)
            latent[where] = self.mixture.sample(len(where), rng, counts=counts)[0]
        return self.decode(latent)

    def decode(self, latent, chunk_rows=4096):
        """Mean rows of latents, shape (n_samples, n_features), float32."""
        latent = np.asarray(latent, dtype=np.float32)
        parts = [self._decode(latent[i : i + chunk_rows]) for i in range(0, len(latent), chunk_rows)]
        return np.concatenate(parts) if parts else np.empty((0, len(self.space.center)), dtype=np.float32)

    def _decode(self, latent):
        if self.layers is None:
            import torch

            with torch.inference_mode():
                output = self.module.decoder(torch.from_numpy(latent)).numpy()
        else:
            output = latent
            for i, (weight, bias) in enumerate(self.layers):
                output = np.maximum(output, 0.0) if i else output
                output = output @ weight.T + bias
        if self.likelihood == "gaussian":
            return output
        if self.likelihood == "bernoulli":
            return expit(output)
        blocks = np.split(output, np.cumsum(self.widths)[:-1], axis=1)
        blocks = [np.exp(block - block.max(axis=1, keepdims=True)) for block in blocks]
        return np.concatenate([block / block.sum(axis=1, keepdims=True) for block in blocks], axis=1)

    def elbo(self, rows, components=None):
        """ELBO of each row by draws of its latent that are the same for all rows, shape (n_samples,).

        The score of a row is a function of that row alone. A component of -1 is not known.
        """
        if self.module is None:
            raise ValueError("a loaded model keeps no encoder variance, so it has no ELBO")
        import torch

        from ..nn._modules import DRAWS, fixed_normals, in_double

        x = np.asarray(rows, dtype=np.float64)
        n_labels = self.module.n_labels
        if n_labels:  # the component that the row's latent makes most likely, where none is known
            likely = self.mixture.component_log_prob(self.space.encode(x)).argmax(axis=1)
            components = likely if components is None else np.where(np.asarray(components) < 0, likely, components)
            x = np.concatenate([x, np.eye(n_labels)[components]], axis=1)
        shape = getattr(self.module, "noise_shape", None)
        draws = [None] if shape is None else fixed_normals(DRAWS, shape)
        module, scores = in_double(self.module), []
        with torch.inference_mode():
            for part in torch.from_numpy(x).split(4096):
                losses = [module(part, None if draw is None else draw.expand(len(part), *shape)) for draw in draws]
                scores.append(-torch.stack(losses).mean(0).numpy())
        return np.concatenate(scores) if scores else np.zeros(0)

    def to_state(self):
        """Return arrays for a release file; ValueError for a decoder that is a module of the user's own."""
        if self.layers is None:
            raise ValueError("a model whose decoder is a module of your own cannot be saved: files hold no code")
        return {
            "center": self.space.center,
            "basis": self.space.basis,
            "weights": self.mixture.weights,
            "means": self.mixture.means,
            "covariances": self.mixture.covariances,
            "covariance_type": self.mixture.covariance_type,
            "layers": {f"{i}": {"weight": w, "bias": b} for i, (w, b) in enumerate(self.layers)},
            "likelihood": self.likelihood,
            "widths": self.widths,
        }

    @classmethod
    def from_state(cls, state):
        """Rebuild from `to_state`."""
        mixture = check_mixture(
            GaussianMixtureParameters(state["weights"], state["means"], state["covariances"], state["covariance_type"])
        )
        layers = [
            (layer["weight"], layer["bias"]) for _, layer in sorted(state["layers"].items(), key=lambda x: int(x[0]))
        ]
        return cls(LatentSpace(state["center"], state["basis"]), mixture, layers, state["likelihood"], state["widths"])


def check_network(settings, n_features, n_latent, exact):
    """Refuse, before anything is charged, a network that cannot be trained privately, or at all.

    Parameters
    ----------
    settings : dict
        Parameters of the synthesizer.
    n_features, n_latent : int
        Columns and latents of the network.
    exact : bool
        Whether they are those of the fit; if not, nothing but the kind of the layers is checked.

    Raises
    ------
    ValueError
        For what is no DPNet, BatchNorm, LBFGS, a module of other shapes, a device that is not there.
    """
    import torch

    from ..dpsgd import check_module, check_optimizer
    from ..nn._dp_net import check_template

    check_template(settings["net"])
    try:
        torch.zeros(1, device=settings["device"])
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device={settings['device']!r} cannot be used: {str(error).splitlines()[0]}") from None
    widths = None if settings["likelihood"] != "table" else [n_features]
    prior = GaussianMixtureParameters(np.ones(1), np.zeros((1, n_latent)), np.eye(n_latent)[None], "full")
    space = LatentSpace(np.zeros(n_features), np.eye(n_features)[:, :n_latent])
    likelihood = "gaussian" if settings["likelihood"] == "auto" else settings["likelihood"]
    net = _make_net(settings, space, prior, likelihood, widths, 0, plan=None, progress_text="")
    check_optimizer(net.optimizer)
    net.initialize()
    check_module(net.module_)
    if exact:
        try:
            net.check(np.zeros((4, n_features), dtype=np.float32))
        except RuntimeError as error:  # shapes that do not fit one another
            raise ValueError(f"the network does not fit {n_latent} latents and {n_features} columns: {error}") from None


def decoder_plan(settings, plan, row_count, neighboring):
    """The DP-SGD plan of a charged fit."""
    from ..dpsgd import DPSGDPlan

    train = DPSGDPlan(
        sampling_rate=settings["sampling_rate"],
        steps=settings["steps"],
        l2_bound=settings["gradient_bound"],
        noise_multiplier=plan.noise_multipliers["decoder"],
        expected_batch_size=max(1.0, settings["sampling_rate"] * row_count),
        neighboring=neighboring,
    )
    return settings["receipt"].cover(train)


def train_decoder(rows, plan, space, mixture, *, settings, likelihood, widths, n_labels, warm_rows, progress_text):
    """Train P3GM's network on private rows under a plan that was charged; returns what may be released of it.

    Parameters
    ----------
    rows : array of shape (n_samples, n_features [+ n_labels]), float32
        Private; trailing one-hot columns say which component of the prior a row belongs to.
    plan : DPSGDPlan
    space : LatentSpace
    mixture : GaussianMixtureParameters
        The released prior.
    settings : dict
        Parameters of the synthesizer.
    likelihood : {"bernoulli", "gaussian", "table"}
    widths : array of int or None
        Number of levels of each block, for "table".
    n_labels : int
    warm_rows : array like `rows`
        Synthetic rows from the released prior and decoder.
    progress_text : str

    Returns
    -------
    NetGenerator
    """
    import torch

    net = _make_net(settings, space, mixture, likelihood, widths, n_labels, plan=plan, progress_text=progress_text)
    net.initialize()
    if settings["warm_start_steps"]:
        _warm_start(net.module_, torch.from_numpy(warm_rows), settings["warm_start_steps"], settings["seed"])
    net.partial_fit(rows)
    module = net.module_.cpu().eval()
    generator = NetGenerator(space, mixture, _layers(module.decoder), likelihood, widths, module)
    generator.noise = (net.noise_description_, net.noise_private_)
    return generator


def _make_net(settings, space, mixture, likelihood, widths, n_labels, *, plan, progress_text):
    """The net of the settings, or the default, given what was released."""
    from sklearn.base import clone

    from ..nn import BernoulliLikelihood, DPNet, GaussianLikelihood, MixturePrior, P3GMModule, TableLikelihood

    net = DPNet(P3GMModule) if settings["net"] is None else clone(settings["net"])
    laws = {"bernoulli": BernoulliLikelihood, "gaussian": GaussianLikelihood}
    return net.set_params(
        plan=plan,
        noise=settings["noise"],
        device=settings["device"],
        random_state=settings["seed"],
        progress_text=progress_text,
        verbose=2 if settings["progress"] else 0,
        module__basis=space.basis.copy(),  # eigenvectors may lie backwards in memory, which torch refuses
        module__center=space.center.copy(),
        module__prior=MixturePrior(mixture.weights, mixture.means, mixture.covariances),
        module__likelihood=TableLikelihood(widths) if likelihood == "table" else laws[likelihood](),
        module__n_labels=n_labels,
        module__latent_variance=settings["latent_variance"],
        module__n_monte_carlo=settings["n_monte_carlo"],
    )


def _warm_start(module, rows, steps, seed):
    """Ordinary training on synthetic rows; draws, dropout's too, follow the seed alone."""
    import torch

    from ..dpsgd._seeding import torch_seeded

    device = next(module.parameters()).device
    generator = torch.Generator().manual_seed(int(seed))
    optimizer = torch.optim.Adam([p for p in module.parameters() if p.requires_grad], lr=1e-3)
    shape = getattr(module, "noise_shape", None)
    module.train()
    for step in range(steps):
        batch = rows[torch.randint(len(rows), (_WARM_BATCH,), generator=generator)].to(device)
        noise = None if shape is None else torch.randn(_WARM_BATCH, *shape, generator=generator).to(device)
        optimizer.zero_grad()
        with torch_seeded(int(seed) + step, device):
            module(batch, noise).mean().backward()
        optimizer.step()


def _layers(decoder):
    """Weights of a stack of linear layers with ReLU between them, None for anything else."""
    from torch import nn

    if not isinstance(decoder, nn.Sequential):
        return None
    parts = list(decoder)
    if (
        not all(isinstance(part, nn.ReLU if i % 2 else nn.Linear) for i, part in enumerate(parts))
        or len(parts) % 2 == 0
    ):
        return None
    return [(part.weight.detach().numpy().copy(), part.bias.detach().numpy().copy()) for part in parts[::2]]
