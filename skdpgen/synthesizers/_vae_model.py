"""Private variational autoencoders: their settings, plan and networks, the released model, and the fit."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import numpy as np

from .._parameters import GroupDivergence
from ..exceptions import InvalidInputError
from ..generators.components import spread_components
from ..utils.blocks import mapped_rows
from ..utils.callers import warn_user
from ..utils.file_checks import check_size
from ..utils.validation import as_numbers, check_model_size
from ._moment_start import draw_rows, learn_facts, start_autoencoder
from ._phases import MomentSettings
from ._released import CHUNK_ROWS, NOT_SAVED, ReleasedModel
from ._training import (
    Network,
    Training,
    counted_rows,
    encode_rows,
    have_class,
    resolve_sampling,
    sizes_by_counts,
    with_labels,
)

# Latents from which on a sparse encoder has a meaning: it normalises the length of those of a record.
_FEWEST_SPARSE = 3
# Gaussians of prior="mixture".
_MIXTURE = 10
# Records that a group is to be expected to have: its divergence is that of so few latents, but the mean over many small
# groups has little noise, for a record moves one of them alone. And the part of the groups in the noise of a step.
_GROUP_SIZE, _GROUP_SHARE = 16, 0.2
# The default net takes steps as long as noisy gradients allow. An average of the released parameters over about 100
# steps removes much of the noise.
DEFAULT_LEARNING_RATE, DEFAULT_AVERAGE = 5e-3, 0.99
# After a warm start: the rate of the default net, of a table and of an array, and its hidden units, more than where the
# noise has to teach them everything.
_TABLE_RATE, _ARRAY_RATE, _REFINED_UNITS = 3e-4, 1e-3, 300


# ---- settings -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class VAESettings:
    """A variational autoencoder and its training; `start_steps`: on rows of released moments, or None."""

    n_components: int
    beta: float
    likelihood: str
    image_shape: tuple | None
    training: Training
    network: Network
    prior: object = "normal"
    groups: GroupDivergence | None = None
    start_steps: int | None = None

    def make_prior(self):
        """The prior; a module that the user gave, as a copy: training must not change a parameter of the estimator."""
        import torch

        from ..nn import GaussianMixturePrior, NormalPrior, SparsePrior

        if self.prior == "normal":
            return NormalPrior()
        if self.prior == "sparse":
            return SparsePrior()
        if self.prior == "mixture":
            generator = torch.Generator().manual_seed(self.network.seed)
            means = torch.randn((_MIXTURE, self.n_components), generator=generator)
            return GaussianMixturePrior(means, variance=0.25, learned=True)
        return copy.deepcopy(self.prior)


def vae_settings(given, seed):
    """Return the `VAESettings` of resolved parameters of a synthesizer; those that it lacks are at their defaults.

    Raises ValueError: parameters that contradict one another, or that would do nothing in this combination.
    """
    shared = {name: given[name] for name in ("n_components", "beta", "likelihood", "image_shape")}
    shared["training"] = Training(given["sampling_rate"], given["steps"], given["gradient_bound"])
    shared["network"] = Network.of(given, seed)
    divergence = given.get("divergence")
    if divergence is None:
        if given["beta"] == 0:
            raise ValueError(
                "beta=0 without a divergence leaves the latents without a prior: give beta > 0, or a divergence"
            )
    else:
        aggregation, n_groups, bound = (given[name] for name in ("aggregation", "n_groups", "group_gradient_bound"))
        if aggregation != "termwise":
            for name, value in {"n_groups": n_groups, "gradient_bound": bound}.items():
                if value is not None:
                    raise ValueError(
                        f'{name}= of GroupDivergence is used only with aggregation="termwise": leave it out'
                    )
        shared["groups"] = GroupDivergence(
            divergence, alpha=given["alpha"], n_groups=n_groups, gradient_bound=bound, aggregation=aggregation
        )
    start_steps = given.get("warm_start_steps") or None
    return VAESettings(**shared, prior=given.get("prior", "normal"), start_steps=start_steps)


def resolve_training(settings, n_rows, relation, /, **sizes):
    """Set rate and steps by a public number of rows; refuse more groups than records to expect of it."""
    settings = replace(settings, training=resolve_sampling(settings.training, n_rows, relation, **sizes))
    if settings.groups is None or relation != "replace_one":  # between units it is no text
        return settings
    expected = settings.training.sampling_rate * n_rows
    n_groups, smallest = _group_sizes(settings.groups, expected)
    if expected < n_groups * smallest:
        raise InvalidInputError(
            f"n_groups={n_groups} groups of at least {smallest} need {n_groups * smallest} records a step; "
            f"{expected:.4g} are to be expected (of batch_size, or sampling_rate)"
        )
    return settings


def _group_sizes(groups, expected_batch_size):
    """Number of groups of a step, and the fewest records of a group that its divergence takes.

    `expected_batch_size`: public or released; by default the number of groups follows from it.
    """
    from ..nn._divergences import make_divergence

    smallest = make_divergence(groups.kind).min_group_size
    if groups.aggregation != "termwise":
        return 1, smallest
    return groups.n_groups or max(1, int(expected_batch_size // _GROUP_SIZE)), smallest


# ---- budget -------------------------------------------------------------------------------------------------------
def training_plan(settings, fit, step_size):
    """The DP-SGD plan of a charged fit; its denominators are public or released.

    `step_size`: Count of rows, or of units where each counts 1 (`ChargedFit.step_size`): public or released. Returns
    DPSGDPlan, bool: the flag is whether a group may be expected to have as many records as the divergence needs.
    """
    from ..dpsgd import DPSGDPlan, TermwisePlan, WholeBatchPlan
    from ..dpsgd._plan import plan_of_fit

    training, groups = settings.training, settings.groups
    bound, expected, enough = training.gradient_bound, max(1.0, training.sampling_rate * step_size.value), True
    if groups is None:
        kind, own = DPSGDPlan, {"l2_bound": bound}
    else:
        n_groups, smallest = _group_sizes(groups, expected)
        floor = float(n_groups * smallest)
        enough, expected = expected >= floor, max(expected, floor)
        kind, own = WholeBatchPlan, {"gradient_bound": bound, "aggregation": groups.aggregation}
        if groups.aggregation == "termwise":
            group_bound = groups.gradient_bound
            if group_bound is None:  # 2 C2/b is this share of C1/B + 2 C2/b
                group_bound = _GROUP_SHARE / (1 - _GROUP_SHARE) * bound * n_groups / (2 * expected)
            kind, own = TermwisePlan, {"sample_bound": bound, "group_bound": group_bound, "n_groups": n_groups}
    return plan_of_fit(training, fit.plan, fit.noise["training"], step_size, kind, least=expected, **own), enough


# ---- network ------------------------------------------------------------------------------------------------------
def make_likelihood(name, widths=None):
    """A likelihood of its name."""
    from ..nn import BernoulliLikelihood, GaussianLikelihood, LaplaceLikelihood, TableLikelihood

    if name == "table":
        return TableLikelihood(widths)
    return {"bernoulli": BernoulliLikelihood, "gaussian": GaussianLikelihood, "laplace": LaplaceLikelihood}[name]()


def make_net(settings, n_features, n_labels, likelihood, *, plan=None, progress_text=""):
    """The net of the settings, or the default."""
    from ..nn import DPNet, ParameterAverage, PriVAEModule, TableLikelihood
    from ..nn._divergences import make_divergence

    groups = settings.groups
    expected = 1.0 if plan is None else plan.expected_batch_size / getattr(plan, "n_groups", 1)
    average = [("average", ParameterAverage(DEFAULT_AVERAGE))]
    own = {"lr": DEFAULT_LEARNING_RATE}
    if settings.start_steps is not None:
        rate = _TABLE_RATE if isinstance(likelihood, TableLikelihood) else _ARRAY_RATE
        own = {"lr": rate, "module__n_hidden": _REFINED_UNITS}
    if settings.prior == "sparse" and groups is not None and settings.n_components >= _FEWEST_SPARSE:
        own["module__encoder"] = "sparse"  # another meets the divergence without sparse latents
    return settings.network.make(
        lambda: DPNet(PriVAEModule, callbacks=average, **own),
        plan,
        progress_text,
        n_features=n_features,
        n_latent=settings.n_components,
        likelihood=likelihood,
        prior=settings.make_prior(),
        divergence=None if groups is None else make_divergence(groups.kind, expected),
        alpha=0.0 if groups is None else groups.alpha,
        beta=settings.beta,
        n_labels=n_labels,
        image_shape=settings.image_shape if settings.start_steps is None else None,
    )


def check_network(settings, n_features, n_labels, exact):
    """Refuse, before anything is charged, what cannot be trained privately, or at all.

    `exact`: whether they are those of the fit; if not, they are the least ones, and modules of the user's own that have
        a fixed number of columns are refused.
    Raises ValueError for what is no DPNet, BatchNorm, LBFGS, modules of other shapes, a device that is not there; a
        prior of another dimension; a divergence that is not one finite number, or that reaches other groups.
    """
    from ..nn import PriVAEModule
    from ..nn._divergences import check_divergence, make_divergence
    from ..nn._priors import check_prior

    settings.network.check()
    check_prior(settings.make_prior(), settings.n_components)
    if settings.groups is not None:
        check_divergence(make_divergence(settings.groups.kind), settings.n_components)

    def make(columns):
        return make_net(settings, columns, n_labels, make_likelihood("gaussian"))

    options = {"n_more": n_labels, "groups": settings.groups is not None}
    check_modules(make, PriVAEModule, lambda module: module, settings, n_features, exact, **options)


def check_modules(make, kind, autoencoder, settings, n_features, exact, *, n_more, **options):
    """Refuse a net whose optimizer or modules cannot be trained privately, or do not fit the rows.

    `make`: number of columns -> DPNet. `kind`: of its module. `autoencoder`: from the module to one autoencoder of it.
    `n_more`: further numbers of a row: its labels, and its cluster. **options: of `DPNet.check`.
    """
    from ..dpsgd import check_module, check_optimizer
    from ..nn._parameters import check_unknown_width

    net = make(n_features)
    check_optimizer(net.optimizer)
    net.initialize()
    if not isinstance(net.module_, kind):
        raise InvalidInputError(f"the net's module must be a {kind.__name__}; got {type(net.module_).__name__}")
    numbers = 4 * sum(p.numel() for p in net.module_.parameters())  # parameters, gradients, two averages of Adam
    check_model_size(numbers, n_components=settings.n_components, net=type(net.module_).__name__)
    own = autoencoder(net.module_)
    settings.network.check_saved(own.architecture is not None and _describe_prior(own.prior) is not None)
    check_module(net.module_)

    def check(columns, net=None):
        (make(columns) if net is None else net).check(np.zeros((4, columns + n_more), np.float32), **options)

    if not exact and settings.network.has_own_layers(kind):
        named = "module__encoder= or module__decoder= of net="
        check_unknown_width(check, n_features, named, "or give a module class that takes the number of columns")
        return
    try:
        check(n_features, net)
    except RuntimeError as error:  # shapes that do not fit one another
        raise ValueError(
            f"the network does not fit {settings.n_components} latents and rows of {n_features + n_more} columns: "
            f"{error}. Check module__encoder= and module__decoder= of net="
        ) from None


# ---- the released model -------------------------------------------------------------------------------------------
class VAEModel(ReleasedModel):
    """Released state of a private variational autoencoder: encoder, decoder and prior.

    `module`: on the CPU, in evaluation mode, its divergence dropped.
    `likelihood`: "bernoulli" or "gaussian" or "laplace" or "table".
    `component_weights` (n_components,): of classes, where the model is conditional on them, else one.
    """

    def __init__(self, codec, module, likelihood, row_count, component_weights):
        super().__init__(codec, row_count, component_weights)
        self.module, self.likelihood = module, likelihood

    @property
    def n_latent(self):
        """Number of latent dimensions."""
        return self.module.n_latent

    # ---- rows out ------------------------------------------------------------------------------------------------
    def draw(self, components, rng):
        """Scaled rows, or codes of levels, of given classes: latents from the prior, through the decoder."""
        return self.vectors(self.decode_mean(self.draw_latents(len(components), rng), components), rng)

    def vectors(self, decoded, rng):
        """Scaled rows in their box, or codes drawn from the probabilities of levels."""
        return np.clip(decoded, *self.codec.box) if self.kind == "array" else self.draw_levels(decoded, rng)

    def draw_latents(self, n, rng):
        """Draws of the prior, shape (n, n_latent)."""
        import torch

        normals = torch.from_numpy(rng.standard_normal((n, 1, 2, self.n_latent))).float()
        with torch.inference_mode():
            parts = [self.module.prior.sample(part)[:, 0].numpy() for part in normals.split(CHUNK_ROWS)]
        return np.concatenate(parts)

    def decode(self, latent, rng, classes=None):
        """Rows from latents, those of y left out; classes that are not given are drawn by their released shares."""
        if self.codec.n_classes and classes is None:
            classes = spread_components(len(latent), self.class_ratio, rng)
        return self.rows_of(self.vectors(self.decode_mean(latent, classes), rng), classes, rng)

    def decode_mean(self, latent, classes):
        """Mean of scaled rows, or probabilities of levels, shape (n, n_features)."""
        import torch

        from ..nn._generators import one_hot

        z = torch.from_numpy(np.ascontiguousarray(latent, dtype=np.float32))
        labels = one_hot(classes, self.codec.n_classes)
        with torch.inference_mode():
            parts = []
            for i in range(0, len(z), CHUNK_ROWS):
                part = self.module.decode(z[i : i + CHUNK_ROWS], None if labels is None else labels[i : i + CHUNK_ROWS])
                parts.append(self.module.likelihood.mean(part).numpy())
        return np.concatenate(parts) if parts else np.zeros((0, self.module.n_features), dtype=np.float32)

    # ---- rows in ---------------------------------------------------------------------------------------------
    def encode(self, X):
        """Mean of the encoder's Gaussian for rows, shape (n, n_latent); in blocks of one shape (see `map_blocks`)."""
        import torch

        x, _ = self._scaled(X, None)
        with torch.inference_mode():
            return mapped_rows(lambda rows: self.module.encode(torch.from_numpy(rows))[0].numpy(), x, self.n_latent)

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
        rows = max(1, CHUNK_ROWS // n_importance)
        bounds = []
        with torch.inference_mode():
            for part in torch.from_numpy(np.ascontiguousarray(x, dtype=np.float64)).split(rows):
                each = [module.importance_bound(part, draw.expand(len(part), *draw.shape)) for draw in draws]
                bounds.append(torch.stack(each).mean(0).numpy())
        return np.concatenate(bounds).astype(np.float64)

    def _scaled(self, X, y):
        """Rows as the encoder takes them, float32, and class codes (None where y is not known)."""
        lacks_y = self.kind == "array" and X.shape[1] < len(self.codec.scaling.lower)
        filler = as_numbers(y, "y", "").reshape(-1, 1) if lacks_y and y is not None else None
        x, classes = self.vectors_like_fit(X, y, filler)
        return x.astype(np.float32, copy=False), classes

    # ---- files -----------------------------------------------------------------------------------------------
    def _state(self):
        module = self.module
        prior = _describe_prior(module.prior)
        if module.architecture is None or prior is None:
            raise ValueError(f"a model with your own modules {NOT_SAVED}")
        shape = module.architecture["image_shape"]
        return {
            "likelihood": self.likelihood,
            "n_features": module.n_features,
            "n_latent": module.n_latent,
            "n_labels": module.n_labels,
            "architecture": {**module.architecture, "image_shape": None if shape is None else list(shape)},
            "prior": prior,
            "layers": {name: value.numpy().copy() for name, value in module.state_dict().items()},
        }

    @classmethod
    def _restore(cls, codec, state):
        import torch

        from ..nn import PriVAEModule
        from ..nn._networks import check_module_arrays

        check_size(state["n_latent"], state["prior"].get("n_mixture", 1))
        shape = state["architecture"]["image_shape"]

        def make():
            with torch.device("cpu"):  # a prior computes with numbers of its own
                prior = _prior_of(state["prior"], state["n_latent"])
            return PriVAEModule(
                state["n_features"],
                state["n_latent"],
                make_likelihood(state["likelihood"], codec.n_levels if state["kind"] == "frame" else None),
                prior=prior,
                n_labels=state["n_labels"],
                **{**state["architecture"], "image_shape": None if shape is None else tuple(shape)},
            )

        check_module_arrays(make, state["layers"])
        module = make()
        module.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in state["layers"].items()})
        return cls(codec, module.eval(), state["likelihood"], state["row_count"], state["component_weights"])


def _describe_prior(prior):
    """What a file holds of a prior beside its tensors; None for a module that the user gave."""
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
    from ..nn import GaussianMixturePrior, NormalPrior, SparsePrior

    if state["kind"] == "sparse":
        return SparsePrior(state["sparsity"], state["spike_variance"])
    if state["kind"] == "mixture":
        return GaussianMixturePrior(np.zeros((state["n_mixture"], n_latent)), state["variance"], state["learned"])
    return NormalPrior()


# ---- the fit ------------------------------------------------------------------------------------------------------
def fit_vae_model(rows, settings, fit):
    """Make all releases of a VAE: facts that were not declared, counts or moments, and the steps of DP-SGD."""
    start = None if settings.start_steps is None else MomentSettings(progress=settings.network.progress)
    codec, counts, moments = learn_facts(rows, fit, start)
    x, _, likelihood, widths = encode_rows(rows, codec, settings)
    row_count, weights, step_size = sizes_by_counts(counts, rows, fit, moments)
    train, enough = training_plan(settings, fit, step_size)
    if not enough:
        warn_user(
            f"few records a step for {getattr(train, 'n_groups', 1)} groups: most are smaller than the divergence "
            "needs; lower n_groups or raise sampling_rate"
        )
    net = make_net(
        settings,
        x.shape[1] - codec.n_classes,
        codec.n_classes,
        make_likelihood(likelihood, widths),
        plan=fit.cover(train),
        progress_text=fit.progress_text,
    )
    net.fit_file = fit.checkpoint
    net.initialize()
    if moments is not None and fit.starts_training:
        synthetic = with_labels(*draw_rows(moments, fit.stream), codec)
        start_autoencoder(net.module_, synthetic, settings.start_steps, settings.network)
    x, units = counted_rows(rows, have_class(x, codec.n_classes), x)
    net.partial_fit(x, groups=units)
    module = net.module_.cpu().eval()
    module.divergence = None  # a function of the user's own has no place in a released model
    model = VAEModel(codec, module, likelihood, row_count, weights)
    model.gradient_noise = (net.noise_description_, net.noise_private_)
    return model
