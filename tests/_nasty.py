"""Every public estimator with values of its parameters that nobody expects, and what may come of a fit with them."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from decimal import Decimal
from fractions import Fraction
from numbers import Integral, Real

import numpy as np
from _flat import make_flat
from joblib import parallel_config

from skdpgen import (
    DPPCA,
    DPSGD,
    DataLensSynthesizer,
    DP2VAESynthesizer,
    DPCGANSynthesizer,
    DPGaussianMixture,
    DPGMSynthesizer,
    DPMERFSynthesizer,
    DPSinkhornSynthesizer,
    DPVAESynthesizer,
    GPATESynthesizer,
    GroupDivergence,
    GSWGANSynthesizer,
    LatentMixture,
    MomentSynthesizer,
    P3GMSynthesizer,
    PATEGANSynthesizer,
    PriVAESynthesizer,
    PrivateSearchCV,
)
from skdpgen._base import PrivateEstimator
from skdpgen._parameters import ParameterObject
from skdpgen.nn import DPNetClassifier
from skdpgen.utils.validation import Interval

__all__ = ["CASES", "LISTS", "NASTY", "OBJECTS", "Charged", "outcome", "parameters_with"]

N = 60
_RNG = np.random.default_rng(0)
X = _RNG.normal(size=(N, 4)).clip(-1, 1)
Y = _RNG.integers(0, 2, N)
_PUBLIC = {"bounds": (-1, 1), "l2_bound": 2.0}
# steps of every record are priced in closed form, where a rate below 1 would take a second
_STEPS = {"steps": 2, "sampling_rate": 1.0}
_VAE = {"n_components": 2, **_STEPS}
_SUBSETS = {"n_subsets": 10, "subsets_per_step": 10, "pretrain_steps": 2, "steps": 2, "n_components": 2}


def _search():
    return PrivateSearchCV(
        DPPCA(2, bounds=(-1, 1), l2_bound=2.0),
        {"centering": ["joint", "two_round"]},
        runs="logarithmic",
        mean_runs=1.5,
        score_bounds=(-30, 10),
    )


# name -> (maker of an estimator that is cheap to fit, data)
CASES = {
    "pca": (lambda: DPPCA(2), (X,)),
    "pca in two rounds": (lambda: DPPCA(2, centering="two_round", **_PUBLIC), (X,)),
    "mixture": (lambda: DPGaussianMixture(2, n_iter=2), (X,)),
    "mixture by class": (lambda: DPGaussianMixture(classes=[0, 1], **_PUBLIC), (X, Y)),
    "mixture, declared means": (
        lambda: DPGaussianMixture(2, n_iter=1, means_init=[[0.5] * 4, [-0.5] * 4], **_PUBLIC),
        (X,),
    ),
    "moments": (lambda: MomentSynthesizer(), (X, Y)),
    "moments, images": (lambda: MomentSynthesizer(image_shape=(2, 2), **_PUBLIC), (X, Y)),
    "p3gm": (lambda: P3GMSynthesizer(prior=LatentMixture(n_iter=2), budget_split={"encoder": 1, "mixture": 1}), (X, Y)),
    "p3gm, net": (
        lambda: make_flat(P3GMSynthesizer, decoder="net", warm_start_steps=2,
            budget_split={"encoder": 1, "decoder": 1}, **_STEPS),
        (X, Y),
    ),
    "p3gm, batches": (
        lambda: make_flat(P3GMSynthesizer,
            decoder="net", warm_start_steps=1, neighboring="replace_one", batch_size=N, epochs=1, **_PUBLIC
        ),
        (X,),
    ),
    "privae": (lambda: make_flat(PriVAESynthesizer, divergence="mmd", n_groups=2, **_VAE), (X, Y)),
    "privae, sparse": (
        lambda: PriVAESynthesizer(
            divergence=GroupDivergence("kl_prior", alpha=0.5, n_groups=2, gradient_bound=1.0), prior="sparse",
            n_components=2,
            neighboring="replace_one", training=DPSGD(batch_size=N, epochs=1), bounds=(-1, 1),
        ),
        (X,),
    ),
    "dp-vae": (lambda: make_flat(DPVAESynthesizer, **_VAE), (X, Y)),
    "dp2-vae": (lambda: make_flat(DP2VAESynthesizer, warm_start_steps=2, **_SUBSETS), (X, Y)),
    "dp2-vae, random start": (
        lambda: make_flat(DP2VAESynthesizer, warm_start_steps=0, bounds=(-1, 1), **_SUBSETS),
        (X, Y),
    ),
    "dp-gm": (lambda: make_flat(DPGMSynthesizer, n_clusters=2, cluster_steps=2, **_VAE), (X, Y)),
    "dp-merf": (lambda: DPMERFSynthesizer(steps=2, n_frequencies=8, hidden_layer_sizes=(4,)), (X, Y)),
    "dp-sinkhorn": (lambda: make_flat(DPSinkhornSynthesizer, generated_rows=4, hidden_layer_sizes=(4,), **_STEPS),
        (X, Y)),
    "dp-sinkhorn, images": (
        lambda: DPSinkhornSynthesizer(
            generated_rows=4, hidden_layer_sizes=(4,), image_shape=(2, 2), n_frequencies=1, l1_weight=1.0,
            training=DPSGD(2),
            bounds=(-1, 1),
        ),
        (X, Y),
    ),
    "dp-cgan": (lambda: make_flat(DPCGANSynthesizer, generator_sizes=(4,), discriminator_sizes=(4,), **_VAE), (X, Y)),
    "dp-cgan, images": (lambda: make_flat(DPCGANSynthesizer, image_shape=(2, 2), bounds=(-1, 1), **_VAE), (X, Y)),
    "pate-gan": (
        lambda: PATEGANSynthesizer(
            n_teachers=3, steps=2, labelled_rows=4, n_components=2, generator_sizes=(4,), student_sizes=(4,)
        ),
        (X, Y),
    ),
    "gs-wgan": (
        lambda: GSWGANSynthesizer(
            n_critics=3, steps=2, generated_rows=3, warm_start_steps=1, batch_size=2, n_components=2,
            hidden_layer_sizes=(4,), critic_sizes=(4,),
        ),
        (X, Y),
    ),
    "gs-wgan, images": (
        lambda: GSWGANSynthesizer(
            n_critics=3, critics_per_step=2, steps=2, generated_rows=3, warm_start_steps=1, batch_size=2,
            n_components=2, hidden_layer_sizes=(4,), critic_sizes=(4,), image_shape=(2, 2), n_frequencies=1,
            bounds=(-1, 1),
        ),
        (X, Y),
    ),
    "datalens": (
        lambda: DataLensSynthesizer(
            n_teachers=3, steps=2, generated_rows=3, n_largest=2, warm_start_steps=1, batch_size=2, n_components=2,
            hidden_layer_sizes=(4,), teacher_sizes=(4,),
        ),
        (X, Y),
    ),
    "datalens, images": (
        lambda: DataLensSynthesizer(
            n_teachers=3, threshold=0.2, steps=2, generated_rows=3, warm_start_steps=1, batch_size=2, n_components=2,
            hidden_layer_sizes=(4,), teacher_sizes=(4,), image_shape=(2, 2), n_frequencies=1, bounds=(-1, 1),
        ),
        (X, Y),
    ),
    "g-pate": (
        lambda: GPATESynthesizer(
            n_teachers=3, steps=2, generated_rows=3, n_projections=2, n_bins=3, warm_start_steps=1, batch_size=2,
            n_components=2, hidden_layer_sizes=(4,), teacher_sizes=(4,),
        ),
        (X, Y),
    ),
    "g-pate, images": (
        lambda: GPATESynthesizer(
            n_teachers=3, vote="largest", threshold=0.2, steps=2, generated_rows=3, warm_start_steps=1, batch_size=2,
            n_components=2, hidden_layer_sizes=(4,), teacher_sizes=(4,), image_shape=(2, 2), n_frequencies=1,
            bounds=(-1, 1),
        ),
        (X, Y),
    ),
    "classifier": (lambda: DPNetClassifier(hidden_layer_sizes=(3,), **_STEPS), (X, Y)),
    "search": (_search, (X,)),
}  # fmt: skip

NASTY = [
    True, False, 0, -1, 1e-320, 1e-100, 1e-30, 1e-7, 1e7, 1e30, 1e100, 1e308, np.inf, -np.inf, np.nan, 10**9, 10**18,
    10**400, 10**5000, np.int8(1), np.uint64(5), np.float16(1), np.float32(0.5), np.longdouble(0.5), np.longdouble(1),
    np.bool_(True), "1", "\ud800", None, [], np.array(0.5), np.array(1), Decimal(1), Fraction(1, 2), Fraction(10**400),
    1j, 0.5,
]  # fmt: skip

# For parameters that hold several numbers, each as long as some parameter is.
LISTS = [
    [], [[]], [0, np.inf], [np.nan, 1], [-1e308, 1e308], [0, 1e-320], [10**400, 1], [0, 10**400], [1, 0], [1, 1],
    [True, False], ["0", "1"], ["a", "b"], [None, 1], [Decimal(0), Decimal(1)], [Fraction(0), Fraction(1, 2)],
    [-1, 0.5], [np.float16(1), np.float16(2)], np.array([0, 1], dtype=np.uint8), [1e-320, 1, 0],
    [np.uint8(200), np.uint8(100), 0],
    [1e308, 1e308, 1e308], [1, 1e-30], [2.5], [10**9], [10**9, 10**9], [2, 2, 1], [2, 2], [1j, 1], {"a": 1}, 3,
    [[0, 1]] * 4, [[0, np.inf]] * 4, [[-1, 1]] * 3 + [[0, 1e-320]], [[0.5] * 4, [np.nan] * 4], [[1e308] * 4, [0] * 4],
    ["\ud800", "a"],
]  # fmt: skip

# For parameters that hold text, modules or anything else.
OBJECTS = [3, 2.5, "", "1", "\ud800", b"x", None, [], {}, (), np.str_("auto"), True, np.nan, 10**5000, object(), print]


class Charged(BaseException):
    """Raised in the place of the first charge: what comes after has not been tried."""


def parameters_with(estimator, kind):
    """Names of the parameters of one kind, those of its objects too: "numbers", "lists", "flags" or "objects"."""
    kinds = {"numbers": [], "lists": [], "flags": [], "objects": []}
    constraints = dict(type(estimator)._parameter_constraints)
    for outer, held in estimator.get_params(deep=False).items():
        if isinstance(held, ParameterObject):
            inner = held._parameter_constraints
            constraints |= {f"{outer}__{name}": inner[name] for name in inner}
    for name, allowed in constraints.items():
        allowed = allowed if isinstance(allowed, list) else [allowed]
        if name in ("accountant", "param_grid", "estimator", "public_data"):
            continue
        if any(isinstance(one, Interval) or one in (Integral, Real) for one in allowed):
            kinds["numbers"].append(name)
        elif "array-like" in allowed or name == "image_shape":
            kinds["lists"].append(name)
        else:
            kinds["flags" if "boolean" in allowed else "objects"].append(name)
    return kinds[kind]


@contextmanager
def _watched(stop):
    """Yield the accountants of the fits in the block, that of the outermost first; with `stop`, none is charged."""
    resolve, charge, seen = PrivateEstimator._resolve_accountant, PrivateEstimator._charge, []

    def resolved(self):
        seen.append(resolve(self))
        return seen[-1]

    def charged(self, accountant, *rest):
        if stop and accountant is seen[0]:
            raise Charged
        return charge(self, accountant, *rest)

    PrivateEstimator._resolve_accountant, PrivateEstimator._charge = resolved, charged
    try:
        yield seen
    finally:
        PrivateEstimator._resolve_accountant, PrivateEstimator._charge = resolve, charge


def outcome(make, data, name, value, *, stop=False, named=True):
    """Fit with ``name=value``: "refused", "charged" (with `stop`, where the fit would go on) or "fitted".

    Raises
    ------
    AssertionError
        The fit failed after its charge, was refused without its parameter's name, or gave values that are not finite.
    """
    estimator = make().set_params(**{name: value})
    with _watched(stop) as accountants, warnings.catch_warnings(), parallel_config("threading"):
        warnings.simplefilter("ignore")
        try:
            estimator.fit(*data)
        except Charged:
            return "charged"
        except Exception as error:
            told = f"{type(error).__name__}: {str(error)[:300]}"
            if accountants and accountants[0].entries:
                raise AssertionError(f"charged, and then failed: {told}") from error
            if named and name.rpartition("__")[2] not in str(error):
                raise AssertionError(f"refused without a word of {name}: {told}") from error
            return "refused"
        assert estimator.get_params()[name] is value, "fit changed a parameter"
        estimator.card_.verify()
        _assert_finite(estimator)
    return "fitted"


def _assert_finite(estimator):
    estimator = getattr(estimator, "best_estimator_", estimator)
    given = [value for name, value in vars(estimator).items() if name.endswith("_") and isinstance(value, np.ndarray)]
    if hasattr(estimator, "sample"):
        drawn = estimator.sample(20)
        given += drawn if isinstance(drawn, tuple) else [drawn]
    for values in map(np.asarray, given):
        assert values.dtype.kind != "f" or np.isfinite(values).all(), "released values are not finite"
