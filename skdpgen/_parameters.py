"""Parameter objects of constructors: settings that belong together, as one parameter; and the split of a budget.

They are scikit-learn estimators without `fit`: `clone` copies them, and ``unit__weighting`` names one of their
parameters in a grid.
"""

from __future__ import annotations

from numbers import Integral, Real

from sklearn.base import BaseEstimator, clone

from ._types import MISSING_UNITS, MOST_ROWS_PER_UNIT, WEIGHTINGS, BoundedUnit
from .utils.printing import shown
from .utils.validation import (
    MOST_DEFORMATION,
    MOST_MOVES,
    MOST_UNITS,
    Interval,
    InvalidParameterError,
    StrOptions,
    check_parameters,
    python_value,
)

# Shares of the whole budget where `budget_split` does not say otherwise: of each kind of fact that is learned, of the
# clusters of DP-GM, and of the model of the target.
_SHARES = {"bounds": 0.05, "clusters": 0.1, "target": 0.1}
_SHARE = Interval(Real, 1e-6, 1, closed="left")
# Labels of releases in a ledger: of facts that are learned, of moments, and of what else makes a model.
_LEARNED = (
    "schema",
    "numbers",
    "categories",
    "ranges",
    "bins",
    "levels",
    "classes",
    "l2_bound",
    "unit_rows",
    "row_count",
)
_MOMENTS = ("moments", "mean", "norm", "triples", "units", "unit_pairs", "cells", "greys")
_MODELS = ("training", "votes", "gradients", "embedding", "network", "em", "start")


class ParameterObject(BaseEstimator):
    """Base of the parameter objects: validated by the estimator that holds them, before anything is charged."""

    def _validate_params(self):
        check_parameters(type(self).__name__, self.get_params(deep=False), self._parameter_constraints)

    def with_python_values(self):
        """Return the same parameters, with numbers of Python's types."""
        return type(self)(**{name: python_value(value) for name, value in self.get_params(deep=False).items()})


class PrivacyUnit(ParameterObject):
    """Who is protected, where a person may have several rows, for the parameter `unit`.

    ``unit="patient_nbr"`` is short for ``unit=PrivacyUnit("patient_nbr")``.

    Parameters
    ----------
    name : column name or None, default=None
        All rows with one identifier in this column of a DataFrame are one unit. The column is neither modelled nor
        sampled. For arrays it is a name, and the identifiers are `groups` of `fit`. None: "unit", with `groups`.
    max_rows : int or None, default=None
        Rows of a unit that are used, at most; of a unit with more, they are drawn at random. Public. None:
        `max_rows_per_unit` of the estimator; where that is None too, it is learned from a part of the budget.
    weighting : {"rows", "units"}, default="rows"
        "rows" counts every row used, and the noise grows with `max_rows`. "units" counts every unit once, its rows in
        equal parts: the noise is that of one row, and the model is that of a random row of a random unit. Where a
        network is trained, the gradient of a unit is the sum, or the mean, over its rows, and is clipped once.
    missing : {"refuse", "own"}, default="refuse"
        Whether a row without an identifier is refused, or is a separate unit.
    columns : column name, sequence of them, or None, default=None
        DataFrames, `MomentSynthesizer` and `P3GMSynthesizer` without a mixture and a network: columns that are constant
        within a unit, such as a year of birth; public. They are constant in synthetic units too
        (``sample(units=1000)``). Where the rows of a real unit differ in them, the first row used counts for the unit.
    shared : column name, sequence of them, or None, default=None
        As `columns`: columns in which the rows of a unit are more alike than those of two units, such as the ward of a
        patient; public. The rows of a synthetic unit are as alike. Rows in memory, or in chunks sorted by unit.

    Examples
    --------
    >>> from skdpgen import MomentSynthesizer, PrivacyUnit
    >>> synth = MomentSynthesizer(1.0, unit=PrivacyUnit("patient_nbr", max_rows=5, weighting="units"))
    >>> synth.set_params(unit__weighting="rows").unit
    PrivacyUnit(max_rows=5, name='patient_nbr')
    """

    _parameter_constraints = {
        "name": [str, Integral, None],
        "max_rows": [Interval(Integral, 1, MOST_ROWS_PER_UNIT, closed="both"), None],
        "weighting": [StrOptions(set(WEIGHTINGS))],
        "missing": [StrOptions(set(MISSING_UNITS))],
        "columns": [str, Integral, list, tuple, None],
        "shared": [str, Integral, list, tuple, None],
    }

    def __init__(self, name=None, max_rows=None, *, weighting="rows", missing="refuse", columns=None, shared=None):
        self.name, self.max_rows = name, max_rows
        self.weighting, self.missing, self.columns, self.shared = weighting, missing, columns, shared

    @property
    def label(self):
        """Name of the unit in ledgers, plans and cards."""
        return "unit" if self.name is None else str(self.name)

    def bounded(self):
        """Return the unit as plans and releases have it; `max_rows` must be set."""
        return BoundedUnit(self.label, self.max_rows, self.weighting)

    def of_plan(self):
        """Return the unit of a plan of steps that is made by hand."""
        if self.missing != "refuse" or self.columns is not None or self.shared is not None:
            raise ValueError("a plan of steps takes no missing=, columns= and shared= of PrivacyUnit")
        return self.bounded()


def unit_columns(unit, which="columns"):
    """Return the `columns` of a PrivacyUnit, or those that are `shared`, as a tuple."""
    given = getattr(unit, which)
    return () if given is None else tuple(given) if isinstance(given, list | tuple) else (given,)


class LatentMixture(ParameterObject):
    """A mixture of Gaussians by DP-EM as the distribution of the latents, for the parameter `prior` of P3GM.

    ``prior="mixture"`` is short for ``prior=LatentMixture()``.

    Parameters
    ----------
    n_components : int, default=3
        Number of Gaussians.
    covariance_type : {"full", "diag"}, default="full"
        Type of the covariances.
    n_iter : int, default=8
        Number of steps of DP-EM; each is one release.

    Examples
    --------
    >>> from skdpgen import LatentMixture, P3GMSynthesizer
    >>> P3GMSynthesizer(prior=LatentMixture(5)).set_params(prior__n_iter=10).prior
    LatentMixture(n_components=5, n_iter=10)
    """

    _parameter_constraints = {
        "n_components": [Interval(Integral, 1, MOST_UNITS, closed="both")],
        "covariance_type": [StrOptions({"full", "diag"})],
        "n_iter": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(self, n_components=3, *, covariance_type="full", n_iter=8):
        self.n_components, self.covariance_type, self.n_iter = n_components, covariance_type, n_iter


class ImageFeatures(ParameterObject):
    """Wavelet features of images, to whose released moments sampled images move, for the parameter `decoder` of P3GM.

    ``decoder="features"`` is short for ``decoder=ImageFeatures()``. More of each makes better images and takes longer:
    ``ImageFeatures(n_steps=48)`` takes three times as long to sample, ``ImageFeatures(n_scales=2, n_steps=8)`` a third.

    Parameters
    ----------
    n_features : int, default=200
        Principal components of the wavelet features of synthetic images, whose moments are released; at most.
    n_scales : {1, 2, 3}, default=3
        Scales of the wavelets: widths of .8, 1.6 and 3.2 pixels.
    n_steps : int, default=16
        Gradient steps of a sampled image; they cost time and no privacy.
    upright : bool, default=False
        Model upright images, and the place, size and slant of each figure beside them; for images of one figure on an
        empty background, such as digits, letters or signatures, whose `bounds` are declared. Before the release, each
        image by itself is shifted, resized and sheared, by its own moments, until its figure stands in the middle, in a
        common size and without slant. Figures that differ in their place, size and slant alone are then alike, and
        their moments describe their strokes. `sample` draws a pose with each image and undoes this. It is worse than
        the default for less than about ten thousand images, for sides of less than 16 pixels, and for images that fill
        their frame, such as photographs or clothes.
    deformation : float, default=0.0
        Standard deviation of smooth random displacements of the pixels of each sampled image along each axis, as a
        share of its side. The image also turns: the standard deviation of the angle, in radians, is 3.4 times as large.
        A classifier of digits that is trained on such images is more accurate: .025; one of clothes is not. The images
        then vary more than the released moments say, and a deformation may change what an image shows, so 0 is nearer
        to the real ones. It costs no privacy.

    Examples
    --------
    >>> from skdpgen import ImageFeatures, P3GMSynthesizer
    >>> P3GMSynthesizer(decoder=ImageFeatures(n_steps=20)).set_params(decoder__n_features=50).decoder
    ImageFeatures(n_features=50, n_steps=20)
    """

    _parameter_constraints = {
        "n_features": [Interval(Integral, 1, MOST_UNITS, closed="both")],
        "n_scales": [Interval(Integral, 1, 3, closed="both")],
        "n_steps": [Interval(Integral, 1, MOST_MOVES, closed="both")],
        "upright": ["boolean"],
        "deformation": [Interval(Real, 0, MOST_DEFORMATION, closed="both")],
    }

    def __init__(self, n_features=200, *, n_scales=3, n_steps=16, upright=False, deformation=0.0):
        self.n_features, self.n_scales, self.n_steps = n_features, n_scales, n_steps
        self.upright, self.deformation = upright, deformation


class DPSGD(ParameterObject):
    """The training of a network by DP-SGD, for the parameter `training` of the synthesizers that have one.

    None stands for the default of the synthesizer. A synthesizer refuses what has no meaning for it. Two synthesizers
    that are given one object share it: ``set_params(training__steps=...)`` of one changes it for both.

    Parameters
    ----------
    steps : int or None, default=None
        Number of steps; public.
    sampling_rate : float or None, default=None
        Probability that a record, or a unit with all its rows, takes part in a step; public.
    batch_size, epochs : int or None, default=None
        Expected number of records in a step, and number of passes over the rows, in the place of `sampling_rate` and
        `steps`. Only under "replace_one" without `unit`, where the number of rows is public.
    gradient_bound : float or None, default=None
        Norm to which the gradient of one record, or of one unit, is clipped.
    warm_start_steps : int or None, default=None
        Ordinary steps on synthetic rows of released moments, before the private ones; they cost no further privacy. 0:
        the initial parameters are random. `PriVAESynthesizer` and `DPVAESynthesizer` release moments for it alone, by
        default of DataFrames and of images.
    net : DPNet or None, default=None
        `DPNet` template, which is cloned; set its parameters by ``training__net__lr``, ``training__net__optimizer``,
        ``training__net__module__n_hidden``.
    device : str or None, default=None
        Torch device of the training, such as "cpu" or "cuda"; None is "cpu".

    Examples
    --------
    >>> from skdpgen import DPSGD, DPVAESynthesizer
    >>> DPVAESynthesizer(training=DPSGD(100, sampling_rate=0.1)).set_params(training__steps=200).training
    DPSGD(sampling_rate=0.1, steps=200)
    """

    _parameter_constraints = {
        "steps": [Interval(Integral, 1, None, closed="left"), None],
        "sampling_rate": [Interval(Real, 1e-6, 1, closed="both"), None],
        "batch_size": [Interval(Integral, 1, None, closed="left"), None],
        "epochs": [Interval(Integral, 1, None, closed="left"), None],
        "gradient_bound": [Interval(Real, 1e-12, 1e12, closed="both"), None],
        "warm_start_steps": [Interval(Integral, 0, None, closed="left"), None],
        "net": "no_validation",
        "device": [str, None],
    }

    def __init__(
        self,
        steps=None,
        sampling_rate=None,
        *,
        batch_size=None,
        epochs=None,
        gradient_bound=None,
        warm_start_steps=None,
        net=None,
        device=None,
    ):
        self.steps, self.sampling_rate, self.batch_size, self.epochs = steps, sampling_rate, batch_size, epochs
        self.gradient_bound, self.warm_start_steps = gradient_bound, warm_start_steps
        self.net, self.device = net, device


class SubsetSGD(ParameterObject):
    """The training of `DP2VAESynthesizer`: encoders on private subsets without noise, one decoder with noise.

    Parameters
    ----------
    n_subsets : int, default=2500
        Number of subsets, K; public: do not derive it from the number of rows. More subsets mean less noise in a step.
    steps : int, default=200
        Steps of stage 2; public. A decoder with random initial parameters needs more.
    sampler : {"poisson", "one_of_k", "balanced"}, default="poisson"
        How each step chooses its subsets: each with probability `subsets_per_step` / K; exactly one; or by a public
        schedule.
    subsets_per_step : int or None, default=None
        Expected number of subsets in a step; None: 50 (K if that is smaller), and 1 for "one_of_k".
    encoder_update : {"stateless", "frozen", "round_robin", "on_query"}, default="stateless"
        How encoders change in stage 2. "stateless": a copy is trained for one step and discarded. "frozen": not at all.
        "round_robin": they are trained in turn, independently of the draws. "on_query": an encoder is trained whenever
        its subset is drawn, as in the paper; this excludes amplification by sampling (see the page "DP2-VAE" of the
        documentation) and needs much more noise.
    pretrain_steps : int, default=20
        Training steps of each encoder in stage 1.
    batch_size : int, default=8
        Rows of a subset in one gradient, drawn with replacement.
    learning_rate : float, default=2e-4
        Learning rate of Adam on the noisy gradient; it falls linearly to zero.
    gradient_bound : float, default=1.0
        Norm to which gradients are clipped: of the decoder, the mean over a batch of one subset.
    warm_start_steps : int, default=3000
        Ordinary steps on synthetic rows drawn from released class moments, from which decoder and encoders start; the
        moments cost a part of the budget. For arrays the latents of the synthetic rows are known: the decoder learns to
        map a latent to its row, and the encoder a row to its latent. For images the decoder is made of the moments, and
        only the encoder learns. 0: no moments are released, and the initial parameters are random, as in the paper;
        the page "DP2-VAE" of the documentation has settings that suit them.
    max_memory : float, default=4.0
        Largest memory of the encoders, in GiB.
    device : str, default="cpu"
        Torch device of the training, such as "cpu" or "cuda".

    Examples
    --------
    >>> from skdpgen import DP2VAESynthesizer, SubsetSGD
    >>> DP2VAESynthesizer(training=SubsetSGD(100)).set_params(training__steps=50).training
    SubsetSGD(n_subsets=100, steps=50)
    """

    _parameter_constraints = {
        "n_subsets": [Interval(Integral, 1, None, closed="left")],
        "steps": [Interval(Integral, 1, None, closed="left")],
        "sampler": [StrOptions({"poisson", "one_of_k", "balanced"})],
        "subsets_per_step": [Interval(Integral, 1, None, closed="left"), None],
        "encoder_update": [StrOptions({"stateless", "frozen", "round_robin", "on_query"})],
        "pretrain_steps": [Interval(Integral, 0, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 1e-12, 1, closed="both")],
        "gradient_bound": [Interval(Real, 1e-12, 1e12, closed="both")],
        "warm_start_steps": [Interval(Integral, 0, None, closed="left")],
        "max_memory": [Interval(Real, 0, None, closed="neither")],
        "device": [str],
    }

    def __init__(
        self,
        n_subsets=2500,
        steps=200,
        *,
        sampler="poisson",
        subsets_per_step=None,
        encoder_update="stateless",
        pretrain_steps=20,
        batch_size=8,
        learning_rate=2e-4,
        gradient_bound=1.0,
        warm_start_steps=3000,
        max_memory=4.0,
        device="cpu",
    ):
        self.n_subsets, self.steps, self.sampler = n_subsets, steps, sampler
        self.subsets_per_step, self.encoder_update = subsets_per_step, encoder_update
        self.pretrain_steps, self.batch_size, self.learning_rate = pretrain_steps, batch_size, learning_rate
        self.gradient_bound, self.warm_start_steps = gradient_bound, warm_start_steps
        self.max_memory, self.device = max_memory, device


class GroupDivergence(ParameterObject):
    """The divergence of the latents of random groups of records, for the parameter `divergence` of PriVAE.

    ``divergence="mmd"`` is short for ``divergence=GroupDivergence("mmd")``.

    Parameters
    ----------
    kind : {"mmd", "kl_prior"} or callable, default="mmd"
        Divergence D of the batch-wise term ``alpha D(q(z), p(z))``, where q is the distribution of the latents of a
        random group: "mmd" is the dimension-wise MMD with a sum of Cauchy kernels, "kl_prior" is KL(p || q) by samples
        of the prior; a function of (latents of a group, prior samples), see `skdpgen.nn.UserDivergence` for what it may
        depend on.
    alpha : float, default=10.0
        Weight of the divergence, before its gradient is clipped; so a larger one changes little.
    n_groups : int or None, default=None
        Number of random groups in a step; each has one gradient. With more groups the noise is smaller, and the
        divergence uses fewer latents. None: so many that a group has 16 records, by the public or released row count.
    gradient_bound : float or None, default=None
        Norm to which the gradient of one group is clipped (C2 of the paper); None is ``C1 b / (8 B)`` with the released
        B, at which the groups make a fifth of the noise.
    aggregation : {"termwise", "micro", "batch"}, default="termwise"
        How gradients are aggregated. "micro" and "batch" are the baselines of the paper, at their true sensitivities:
        their gradients depend on the whole batch, and no average makes the noise smaller.

    Examples
    --------
    >>> from skdpgen import GroupDivergence, PriVAESynthesizer
    >>> PriVAESynthesizer(divergence=GroupDivergence(n_groups=4)).set_params(divergence__alpha=5.0).divergence
    GroupDivergence(alpha=5.0, n_groups=4)
    """

    _parameter_constraints = {
        "kind": [StrOptions({"mmd", "kl_prior"}), callable],
        "alpha": [Interval(Real, 0, None, closed="neither")],
        "n_groups": [Interval(Integral, 1, 2**20, closed="both"), None],
        "gradient_bound": [Interval(Real, 1e-12, 1e12, closed="both"), None],
        "aggregation": [StrOptions({"termwise", "micro", "batch"})],
    }

    def __init__(self, kind="mmd", *, alpha=10.0, n_groups=None, gradient_bound=None, aggregation="termwise"):
        self.kind, self.alpha, self.n_groups = kind, alpha, n_groups
        self.gradient_bound, self.aggregation = gradient_bound, aggregation


# Parameters of the estimators that protect persons with several rows.
UNIT_CONSTRAINTS = {
    "unit": [str, Integral, PrivacyUnit, None],
    "max_rows_per_unit": [Interval(Integral, 1, MOST_ROWS_PER_UNIT, closed="both"), None],
}
# Of all of them; `check_split` validates the entries.
SPLIT_CONSTRAINTS = {"budget_split": [dict, None]}
# Of a `GroupDivergence`, beside its kind, by their flat names.
_TERM_DEFAULTS = {
    "group_gradient_bound" if name == "gradient_bound" else name: value
    for name, value in GroupDivergence().get_params(deep=False).items()
    if name != "kind"
}


def read_unit(parameters):
    """Return who is protected, as `unit` and `max_rows_per_unit` say: one PrivacyUnit, without a name where none is.

    `parameters`: of an estimator; it may have neither.
    """
    unit, most = parameters.get("unit"), parameters.get("max_rows_per_unit")
    unit = clone(unit) if isinstance(unit, PrivacyUnit) else PrivacyUnit(unit)
    if most is None:
        return unit
    if unit.max_rows is not None:
        raise ValueError(
            "max_rows_per_unit= and max_rows= of PrivacyUnit set the same thing: give one of them; nothing was charged"
        )
    return unit.set_params(max_rows=most)


# ---- objects and their parameters ----------------------------------------------------------------------------------
def object_of(owner, name):
    """Class of the parameter object that a parameter of an estimator class may hold, or None."""
    accepted = owner._parameter_constraints.get(name)
    kinds = accepted if isinstance(accepted, list) else []
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, ParameterObject)), None)


def make_objects(owner, parameters):
    """Return parameters as files and command lines hold them, with parameter objects where these are dicts.

    `owner`: class of the estimator.
    """
    made = dict(parameters)
    for name, given in parameters.items():
        kind = object_of(owner, name)
        if kind is not None and isinstance(given, dict):
            known = kind._get_param_names()
            if unknown := sorted(set(given).difference(known)):
                raise ValueError(f"{name}__{unknown[0]}: {kind.__name__} takes {', '.join(known)}")
            made[name] = kind(**given)
    return made


def check_nested(estimator, params):
    """Raise ValueError for a nested parameter of a parameter object that the estimator does not hold."""
    for name in params:
        outer, _, inner = name.partition("__")
        kind = object_of(type(estimator), outer)
        if not inner or kind is None:
            continue
        held = params.get(outer, getattr(estimator, outer, None))
        if not hasattr(held, "set_params"):
            raise ValueError(f"{name} is of an object that {outer}= holds: give {outer}={kind.__name__}() too")


def refuse_inner(owner, names):
    """Raise TypeError for parameters that a class lacks and an object that it holds has: it says how to give them."""
    known = owner._get_param_names()
    unknown = [name for name in (name.partition("__")[0] for name in names) if name not in known]
    if not unknown:
        return
    held = {name: kind for name in known if (kind := object_of(owner, name)) is not None}
    for name in unknown:
        kinds = {holder: kind for holder, kind in held.items() if name in kind._get_param_names()}
        if kinds:
            places = " or ".join(f"{holder}={kind.__name__}({name}=...)" for holder, kind in kinds.items())
            raise TypeError(f"{owner.__name__} has no parameter {name!r}: give {places}")


def flat_parameters(estimator):
    """Return the constructor parameters of a synthesizer, with those of its training and its divergence among them.

    What `training` leaves open, and all of it where it is None, is at the default of the class, `_training_defaults`.
    Of a `GroupDivergence` the gradient bound is `group_gradient_bound`, and the kind is `divergence`.

    Raises ValueError: the training sets what has no meaning for this synthesizer.
    """
    parameters, defaults = estimator.get_params(deep=False), estimator._training_defaults
    if "training" in parameters:
        training = parameters.pop("training")
        given = {} if training is None else training.get_params(deep=False)
        given = {name: value for name, value in given.items() if value is not None}
        if useless := sorted(given.keys() - defaults.keys()):
            raise ValueError(
                f"{useless[0]}= of training= has no meaning for {type(estimator).__name__}, which takes "
                f"{', '.join(sorted(defaults))}: leave it out; nothing was charged"
            )
        parameters |= {**defaults, **given}
    if isinstance(divergence := parameters.get("divergence"), GroupDivergence):
        given = divergence.get_params(deep=False)
        parameters |= {"divergence": given.pop("kind"), "group_gradient_bound": given.pop("gradient_bound"), **given}
    elif "divergence" in parameters:
        parameters |= _TERM_DEFAULTS
    return parameters


def grouped_parameters(owner, flat):
    """Return flat parameters, as files of earlier versions have them, in the objects that hold them now.

    `owner`: class of the synthesizer.
    """
    found, kind = dict(flat), object_of(owner, "training")
    if kind is not None and "training" not in found:
        names = [name for name in kind._get_param_names() if name in found and name not in owner._get_param_names()]
        training = {name: found.pop(name) for name in names}
        usual = owner._training_defaults
        training = {name: value for name, value in training.items() if value != usual.get(name)}
        if training:
            found["training"] = kind(**training)
    if object_of(owner, "divergence") is not None:
        term = {name: found.pop(name, None) for name in _TERM_DEFAULTS}
        term = {name: value for name, value in term.items() if value is not None and value != _TERM_DEFAULTS[name]}
        divergence = found.get("divergence", owner().divergence)
        if term and divergence is not None:
            term = {"gradient_bound" if name == "group_gradient_bound" else name: term[name] for name in term}
            found["divergence"] = GroupDivergence(divergence, **term)
    return found


# ---- the split of a budget -----------------------------------------------------------------------------------------
def check_split(split, names):
    """Refuse a `budget_split` with entries that an estimator does not have, or a share that is none.

    `names`: entries that the estimator has. Those in `_SHARES` are shares of the whole budget; the others are relative
    to one another, and their estimator validates them together.
    """
    if split is None:
        return
    if unknown := [name for name in split if name not in names]:
        raise InvalidParameterError(
            f"budget_split has no entry {unknown[0]!r} here; it takes {', '.join(map(repr, names))}"
            + _holder_in_words(unknown[0], names)
        )
    for name in _SHARES.keys() & split.keys():
        none = name == "target" and isinstance(split[name], Real) and split[name] == 0
        if not none and not _SHARE.is_satisfied_by(split[name]):
            raise InvalidParameterError(
                f"budget_split[{name!r}] must be a share of the budget, from 1e-6 to below 1"
                + (", or 0 for no model of the target" if name == "target" else "")
                + f"; got {shown(split[name])}"
            )


def _holder_in_words(release, names):
    """Which entry holds a release that a ledger names; nothing for other words."""
    if release in _LEARNED:
        return f". The release {release!r} is one of 'bounds', the share of each kind of fact that is learned"
    holders = {**dict.fromkeys(_MOMENTS, ("encoder", "moments")), "features": ("decoder",)}
    if holder := next((name for name in holders.get(release, ()) if name in names), None):
        return f". The release {release!r} is one of {holder!r}"
    if release in (*_MOMENTS, *_MODELS):
        return f". If the fit makes the release {release!r}, that gets what the entries leave"
    return ""


def share_of(split, name):
    """Return the share of the budget of "bounds", "clusters" or "target"."""
    return float((split or {}).get(name, _SHARES[name]))
