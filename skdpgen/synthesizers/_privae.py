"""PriVAE: a private variational autoencoder with a divergence of random groups of records."""

from __future__ import annotations

from numbers import Integral, Real

from ..utils.validation import MOST_UNITS, HasMethods, Interval, StrOptions
from ._privae_base import VAE_CONSTRAINTS, BaseVAESynthesizer

__all__ = ["PriVAESynthesizer"]


class PriVAESynthesizer(BaseVAESynthesizer):
    """Private VAE whose latents are held to a prior by a divergence of many records at once.

    Releases encoder, decoder and prior, trained by term-wise DP-SGD: each step sums the clipped gradients of single
    records (reconstruction and KL) and of random groups of records (the divergence) and adds one draw of noise, for
    what one record can change in both. All phases are calibrated together, so that a fit costs exactly
    (`epsilon`, `delta`), and charged at once.

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
    divergence : {{"mmd", "kl_prior"}}, callable or None, default=None
        D of the batch-wise term ``alpha D(q(z), p(z))``, q the law of the latents of a random group of records: "mmd"
        is the dimension-wise MMD with a sum of Cauchy kernels, "kl_prior" is KL(p || q) by samples of the prior; a
        function of (latents of a group, prior samples), see `skdpgen.nn.UserDivergence` for what it may depend on. None
        is the ordinary loss of a VAE.
    prior : {{"normal", "sparse", "mixture"}} or module, default="normal"
        Law of the latents: standard normal; spike and slab; a mixture of Gaussians with learned means; or a module such
        as ``skdpgen.nn.GaussianMixturePrior(means, variance)``.
    n_mixture : int or None, default=None
        "mixture": number of Gaussians; None is 10.
    alpha : float or None, default=None
        Weight of the divergence, before its gradient is clipped; None is 10.
    n_groups : int or None, default=None
        Random groups of a step, of which each has a gradient. More of them make the noise smaller, and the divergence
        is that of fewer latents; None: as many as let a group have 16 records, by the public or released row count.
    l2_bound_group : float or None, default=None
        Norm to which the gradient of one group is clipped (C2 of the paper); None is ``C1 b / (8 B)`` with the released
        B, at which the groups make a fifth of the noise.
    aggregation : {{"termwise", "micro", "batch"}}, default="termwise"
        "micro" and "batch" are what the paper compares with, at their true sensitivities: gradients that hang on the
        whole batch, under noise that no average makes smaller.
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
        Norm to which the gradient of one record is clipped (C1 of the paper).
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

    Notes
    -----
    A record moves a step by at most ``C1/B + 2 C2/b`` (B the expected batch size, b the number of groups); the paper's
    C2 for 2 C2 is too small, see the page "PriVAE" of the documentation.

    References
    ----------
    .. [1] T. Takahashi, S. Takagi, H. Ono, T. Komatsu, Differentially Private Variational Autoencoders with Term-wise
       Gradient Aggregation, 2020.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from skdpgen import PriVAESynthesizer
    >>> X, y = load_digits(return_X_y=True)
    >>> synth = PriVAESynthesizer(3.0, divergence="mmd", prior="sparse", n_groups=4, bounds=(0, 16), classes=range(10),
    ...                           sampling_rate=0.05, steps=20).fit(X, y)
    >>> X_new, y_new = synth.sample(500)
    >>> X_new.shape, y_new.shape, synth.transform(X).shape
    ((500, 64), (500,), (1797, 10))
    """

    _parameter_constraints = {
        **VAE_CONSTRAINTS,
        "divergence": [StrOptions({"mmd", "kl_prior"}), callable, None],
        "prior": [StrOptions({"normal", "sparse", "mixture"}), HasMethods(["log_prob", "sample"])],
        "n_mixture": [Interval(Integral, 1, MOST_UNITS, closed="both"), None],
        "alpha": [Interval(Real, 0, None, closed="left"), None],
        "n_groups": [Interval(Integral, 1, 2**20, closed="both"), None],
        "l2_bound_group": [Interval(Real, 1e-12, 1e12, closed="both"), None],
        "aggregation": [StrOptions({"termwise", "micro", "batch"})],
    }

    def __init__(
        self,
        epsilon=1.0,
        delta=None,
        *,
        neighboring=None,
        accountant=None,
        divergence=None,
        prior="normal",
        n_mixture=None,
        alpha=None,
        n_groups=None,
        l2_bound_group=None,
        aggregation="termwise",
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
        self.divergence = divergence
        self.prior = prior
        self.n_mixture = n_mixture
        self.alpha = alpha
        self.n_groups = n_groups
        self.l2_bound_group = l2_bound_group
        self.aggregation = aggregation
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
