"""DP-VAE: the private variational autoencoder of records alone, the baseline of several papers."""

from __future__ import annotations

from ._privae_base import VAE_CONSTRAINTS, BaseVAESynthesizer

__all__ = ["DPVAESynthesizer"]


class DPVAESynthesizer(BaseVAESynthesizer):
    """Variational autoencoder trained by DP-SGD: `PriVAESynthesizer` without divergence, under a standard normal prior.

    Releases encoder, decoder and prior: each step sums the clipped gradients of single records and adds noise.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        What a fit costs. ``numpy.inf`` is the non-private reference (a VAE); None is all that is left of `accountant`.
    delta : float or None, default=None
        None is the accountant's, else 1e-5.
    neighboring : {"add_or_remove_one", "replace_one"} or None, default=None
        None is the accountant's, else "add_or_remove_one".
    accountant : PrivacyAccountant or None, default=None
        The books to charge; None: books of its own, with this budget.
    n_components : int, default=10
        Latent dimensions.
    beta : float, default=1.0
        Weight of KL(q(z|x) || p(z)) of each record.
    n_monte_carlo : int, default=1
        Latent samples a record; more cost time, and nothing else.
    likelihood : {"auto", "bernoulli", "gaussian", "laplace"}, default="auto"
        Of arrays; "auto" is Bernoulli for values that are not negative, else Gaussian; "bernoulli" needs `bounds` that
        say so. DataFrames have one categorical law a column.
    l2_bound_sample : float, default=1.0
        Norm to which the gradient of one record is clipped.
    target, schema, classes, target_type, bounds, on_invalid
        As in `P3GMSynthesizer`: what is public of the data. With a categorical y or `target` the decoder is
        conditional on the class; a numeric one is a column like the others.
    image_shape : (height, width) or (height, width, channels) or None, default=None
        Arrays: rows are images, and the nets convolutional.
    bounds_share : float, default=0.05
        Share of the budget for each kind of fact that is learned: schema, bins of numeric columns; bounds, classes.
    sampling_rate : float, default=0.02
        Probability of a record to take part in a step; public.
    steps : int, default=500
        Steps of DP-SGD; public.
    batch_size, epochs : int or None, default=None
        Under "replace_one" alone, where the number of rows is public: set `sampling_rate` and `steps` by it.
    net : DPNet or None, default=None
        A template, cloned, for ``net__lr``, ``net__optimizer``, ``net__module__n_hidden``, ``net__module__encoder``,
        ``net__module__decoder``. None: a `DPNet` of `PriVAEModule` with Adam at 5e-3 and a `ParameterAverage` of .99.
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
    classes_, class_ratio_ : arrays
        Released or declared classes and their released shares, with a categorical y or `target`.
    row_count_ : float
        Released number of rows: what ``sample()`` draws.
    schema_ : Schema
        Of DataFrames: declared or released bounds and categories, y last.
    bounds_ : array of shape (n_features, 2)
        Of arrays: declared or released bounds of each column.
    model_ : object
        Released state: codec, encoder, decoder, prior.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from skdpgen import DPVAESynthesizer
    >>> X, y = load_digits(return_X_y=True)
    >>> synth = DPVAESynthesizer(3.0, bounds=(0, 16), classes=range(10), sampling_rate=0.05, steps=20).fit(X, y)
    >>> X_new, y_new = synth.sample(500)
    >>> X_new.shape, y_new.shape
    ((500, 64), (500,))
    """

    _parameter_constraints = VAE_CONSTRAINTS
    _fixed = {
        "divergence": None,
        "prior": "normal",
        "n_mixture": None,
        "alpha": None,
        "n_groups": None,
        "l2_bound_group": None,
        "aggregation": "termwise",
    }

    def __init__(
        self,
        epsilon=1.0,
        delta=None,
        *,
        neighboring=None,
        accountant=None,
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
