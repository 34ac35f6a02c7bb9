"""DP-GM: private k-means on random features, and a variational autoencoder for each cluster."""

from __future__ import annotations

import inspect
from numbers import Integral, Real

from ..data.validation import public_assumptions
from ..utils.validation import MOST_UNITS, Interval, fit_context
from ._dpgm_model import DPGMModel, fit_dpgm_model
from ._dpgm_planning import check_network, plan_phases
from ._planning import resolve_sampling
from ._privae_base import VAE_CONSTRAINTS, LikelihoodSynthesizer
from ._privae_planning import resolve_settings

__all__ = ["DPGMSynthesizer"]

# What `resolve_settings` of the autoencoders knows beside the parameters here.
_PLAIN = {
    "divergence": None,
    "prior": "normal",
    "n_mixture": None,
    "alpha": None,
    "n_groups": None,
    "l2_bound_group": None,
    "aggregation": "termwise",
}


class DPGMSynthesizer(LikelihoodSynthesizer):
    """Mixture of generative networks: k-means on random features, then a variational autoencoder a cluster.

    Releases noisy counts and sums of the rows of each cluster in every iteration, the counts of the clusters, and all
    autoencoders: each step sums the clipped gradients of single records, each in the block of the autoencoder of its
    cluster, and adds noise to all blocks.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        What a fit costs. ``numpy.inf`` is the non-private reference; None is all that is left of `accountant`.
    delta : float or None, default=None
        None is the accountant's, else 1e-5.
    neighboring : {"add_or_remove_one", "replace_one"} or None, default=None
        None is the accountant's, else "add_or_remove_one".
    accountant : PrivacyAccountant or None, default=None
        The books to charge; None: books of its own, with this budget.
    n_clusters : int, default=5
        Public. With 1 no clusters are looked for: the parameters below that concern them have nothing to act on, their
        share goes to the training, and the model is a `DPVAESynthesizer`'s.
    cluster_steps : int, default=5
        Releases of k-means. The first is the mean of all rows, about which the first centres lie.
    clusters_share : float, default=0.1
        Their share of the budget.
    n_frequencies : int, default=20
        Random frequencies, the same in every fit; clusters are found in twice as many cosines and sines.
    length_scale : float, default=1.0
        Of the kernel of these features, over the root of the number of columns (for arrays .3 of it).
    n_components, beta, n_monte_carlo, likelihood, l2_bound_sample
        Of each autoencoder, as in `DPVAESynthesizer`.
    target, schema, classes, target_type, bounds, on_invalid
        As in `P3GMSynthesizer`: what is public of the data. With a categorical y or `target` the decoders are
        conditional on the class, and clusters are found without it; a numeric one is a column like the others.
    image_shape : (height, width) or (height, width, channels) or None, default=None
        Arrays: rows are images, and the nets convolutional.
    bounds_share : float, default=0.05
        Share of the budget for each kind of fact that is learned: schema, bins of numeric columns; bounds, classes.
    sampling_rate : float, default=0.02
        Probability of a record to take part in a step; public, and the same in all clusters.
    steps : int, default=500
        Steps of DP-SGD, of all autoencoders together; public.
    batch_size, epochs : int or None, default=None
        Under "replace_one" alone, where the number of rows is public: set `sampling_rate` and `steps` by it.
    net : DPNet or None, default=None
        A template, cloned, for ``net__lr``, ``net__optimizer``, ``net__module__n_hidden``, ``net__module__encoder``,
        ``net__module__decoder``. None: a `DPNet` of `PartitionedVAEModule` with Adam at 5e-3 and a `ParameterAverage`
        of .99.
    noise : {"secure", "fast"}, default="secure"
        Source of the noise.
    device : str, default="cpu"
        Where torch trains.
    random_state : int, RandomState instance or None, default=None
        Of initialisation and of the sampling stream. Never of the noise: two fits with one seed differ.
    progress : bool, default=False
        A bar of steps on stderr.

    Attributes
    ----------
    accountant_ : PrivacyAccountant
        What the fit charged.
    card_ : PrivacyCard
    cluster_weights_ : array of shape (n_clusters,)
        Released shares of the clusters, by which `sample` draws them.
    classes_, class_ratio_ : arrays
        Released or declared classes and their released shares, with a categorical y or `target`.
    row_count_ : float
        Released number of rows: what ``sample()`` draws.
    schema_ : Schema
        Of DataFrames: declared or released bounds and categories, y last.
    bounds_ : array of shape (n_features, 2)
        Of arrays: declared or released bounds of each column.
    model_ : object
        Released state: codec and autoencoders.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    Against the paper: counts and sums of an iteration in one query, noise calibrated jointly by privacy loss
    distributions, Poisson sampling at one public rate in place of batches of each cluster, sizes of clusters that are
    released and not read off the data. A record is in one cluster, so the autoencoders cost what one of them costs.

    References
    ----------
    .. [1] G. Acs, L. Melis, C. Castelluccia, E. De Cristofaro, "Differentially private mixture of generative neural
       networks", IEEE Transactions on Knowledge and Data Engineering, 2019.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from skdpgen import DPGMSynthesizer
    >>> X, y = load_digits(return_X_y=True)
    >>> synth = DPGMSynthesizer(3.0, n_clusters=2, bounds=(0, 16), classes=range(10), sampling_rate=0.05, steps=20)
    >>> X_new, y_new = synth.fit(X, y).sample(500)
    >>> X_new.shape, y_new.shape
    ((500, 64), (500,))
    """

    _parameter_constraints = {
        **VAE_CONSTRAINTS,
        "n_clusters": [Interval(Integral, 1, MOST_UNITS, closed="both")],
        "cluster_steps": [Interval(Integral, 1, None, closed="left")],
        "clusters_share": [Interval(Real, 1e-6, 1, closed="left")],
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
        clusters_share=0.1,
        n_frequencies=20,
        length_scale=1.0,
        n_components=10,
        beta=1.0,
        n_monte_carlo=1,
        likelihood="auto",
        l2_bound_sample=1.0,
        target=None,
        schema=None,
        classes=None,
        target_type=None,
        bounds=None,
        on_invalid="clip",
        image_shape=None,
        bounds_share=0.05,
        sampling_rate=0.02,
        steps=500,
        batch_size=None,
        epochs=None,
        net=None,
        noise="secure",
        device="cpu",
        random_state=None,
        progress=False,
    ):
        self.epsilon = epsilon
        self.delta = delta
        self.neighboring = neighboring
        self.accountant = accountant
        self.n_clusters = n_clusters
        self.cluster_steps = cluster_steps
        self.clusters_share = clusters_share
        self.n_frequencies = n_frequencies
        self.length_scale = length_scale
        self.n_components = n_components
        self.beta = beta
        self.n_monte_carlo = n_monte_carlo
        self.likelihood = likelihood
        self.l2_bound_sample = l2_bound_sample
        self.target = target
        self.schema = schema
        self.classes = classes
        self.target_type = target_type
        self.bounds = bounds
        self.on_invalid = on_invalid
        self.image_shape = image_shape
        self.bounds_share = bounds_share
        self.sampling_rate = sampling_rate
        self.steps = steps
        self.batch_size = batch_size
        self.epochs = epochs
        self.net = net
        self.noise = noise
        self.device = device
        self.random_state = random_state
        self.progress = progress

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None):
        """Release a generative model of the rows: clusters, and an autoencoder of each.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_samples, n_features)
            One row a person. Arrays hold finite numbers.
        y : array-like of shape (n_samples,), default=None
            Labels; `sample` then gives (X, y). With `target`, an error.

        Returns
        -------
        self

        Raises
        ------
        ValueError, InvalidInputError, SchemaError
            Parameters contradict one another, or the data do not fit what was declared; nothing was charged.
        BudgetExceededError
            The accountant does not allow the fit; nothing was charged.

        Notes
        -----
        **Privacy.** The unit is one row, under `neighboring`. Charged before anything is released, as one composed
        event that costs (`epsilon`, `delta`): one Gaussian event for each kind of fact not declared (at its part of
        `bounds_share`; learned categories also spend a tenth of `delta`), `cluster_steps` of them for the centres, one
        for the counts of clusters and classes, and `steps` Poisson-sampled ones for all autoencoders: a row is in the
        one cluster that it and the released centres say, so its gradient changes one autoencoder (under "replace_one"
        at most two, which costs less than what is charged).
        """
        with self._fitting():
            accountant = self._resolve_accountant()
            (rows, settings), plan = self._prepare(X, y, accountant)
            rng = self._charge(accountant, plan)
            settings["receipt"] = self._receipt
            self._set_model(fit_dpgm_model(rows, settings, plan, rng, accountant.neighboring))
            self._issue_card(plan, rng, public_assumptions(self, rows), self.model_.gradient_noise)
        return self

    def _prepare(self, X, y, accountant):
        defaults = {name: p.default for name, p in inspect.signature(type(self).__init__).parameters.items()}
        parameters = {name: value for name, value in self.get_params(deep=False).items() if name != "accountant"}
        settings = {**resolve_settings({**parameters, **_PLAIN}, defaults), "seed": self._seed()}
        rows = self._read(X, y, settings)
        settings.update(resolve_sampling(settings, len(rows), accountant.neighboring))
        phases = plan_phases(rows, settings)
        plan = self._calibrate(accountant, phases, extra_delta_share=0.1 if rows.learns_classes else 0.0)
        check_network(settings, rows)
        return (rows, settings), plan

    def _set_model(self, model):
        super()._set_model(model)
        self.cluster_weights_ = model.cluster_weights

    @staticmethod
    def _model_from_state(state):
        return DPGMModel.from_state(state)
