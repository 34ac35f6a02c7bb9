"""Whatever value a parameter has: the fit is refused by its name and charges nothing, or it ends in finite samples.

Every public estimator, every parameter of its constructor, every value of a list that nobody expects. In the default
run one of the values in range of each parameter of the quick estimators goes to the end of a fit, and the numbers of
all estimators do once, as numpy's types; marked slow, all values do.
"""

from __future__ import annotations

import zlib

import numpy as np
import pandas as pd
import pytest
from _flat import set_flat
from _nasty import CASES, LISTS, NASTY, OBJECTS, outcome, parameters_with

import skdpgen
from skdpgen import (
    DPPCA,
    DP2VAESynthesizer,
    DPGaussianMixture,
    DPMERFSynthesizer,
    MomentSynthesizer,
    P3GMSynthesizer,
    PrivacyAccountant,
    PriVAESynthesizer,
    PrivateSearchCV,
)
from skdpgen._base import PrivateEstimator
from skdpgen.dpsgd import DPSGDPlan
from skdpgen.dpsgd._subsets import SubsetPlan
from skdpgen.exceptions import SchemaError
from skdpgen.nn import DPNetClassifier
from skdpgen.synthesizers import _dp_merf

pytestmark = [
    pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning"),
    pytest.mark.usefixtures("short_fits"),
]

# Pricing a change of these takes seconds where steps are sampled; one network stands for all of them.
_PRICED = ("epsilon", "delta", "sampling_rate", "batch_size")
_FREE_TO_PRICE = ("pca", "mixture", "moments", "dp-merf", "search")
# Without a network, or with one that stands for all.
_QUICK = {case for case in CASES if case.startswith(("pca", "mixture", "moments", "search"))} | {"p3gm", "classifier"}
# Whose range takes in a fit of a minute, or of memory that a laptop has not: such values are not tried.
_LONG = {
    "steps", "epochs", "n_iter", "cluster_steps", "warm_start_steps", "pretrain_steps",
    "mean_runs", "n_subsets", "n_clusters", "batch_size", "subsets_per_step",
}  # fmt: skip


def _values(case, kind, name):
    values = {"numbers": NASTY, "lists": LISTS + OBJECTS, "flags": OBJECTS, "objects": OBJECTS}[kind]
    name = name.rpartition("__")[2]
    for value in values:
        if name in _LONG and isinstance(value, float | int) and 1000 <= value <= 10**8:
            continue
        in_range = isinstance(value, float) and 1e-300 < value < 1e300
        if name in _PRICED and case not in _FREE_TO_PRICE and in_range:
            continue
        yield value


def _try_all(case, kind, *, whole):
    """Fit with each value; without `whole`, of those in range few, and of the networks' none."""
    make, data = CASES[case]
    failed = []

    def tried(name, value, **options):
        try:
            return outcome(make, data, name, value, named=kind != "objects", **options)
        except AssertionError as error:
            failed.append((name, _shown(value), str(error)))

    for name in parameters_with(make(), kind):
        values = list(_values(case, kind, name))
        in_range = [value for value in values if _in_range(make, name, value)]
        for value in values:
            if not any(value is one for one in in_range):
                tried(name, value)
        if whole:
            for value in in_range:
                tried(name, value)
        elif case in _QUICK:
            charged = [value for value in in_range if kind == "numbers" or tried(name, value, stop=True) == "charged"]
            for value in _few(charged, case, name):
                tried(name, value)
    assert not failed, "\n".join(map(str, failed))


def _in_range(make, name, value):
    try:
        make().set_params(**{name: value})._validate_params()
    except ValueError:
        return False
    return True


def _few(values, case, name):
    """One of the values, another one for each parameter: all cases together try most of them."""
    at = zlib.crc32(f"{case} {name}".encode())
    return values[at % len(values) :][:1] if values else []


def _shown(value):
    return "a whole number of many digits" if isinstance(value, int) and abs(value) > 1e20 else repr(value)


@pytest.mark.parametrize("kind", ["numbers", "lists", "flags", "objects"])
@pytest.mark.parametrize("case", CASES)
def test_a_value_is_refused_before_the_charge_or_gives_a_finite_model(case, kind):
    _try_all(case, kind, whole=False)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["numbers", "lists", "flags", "objects"])
@pytest.mark.parametrize("case", CASES)
def test_every_value_that_is_charged_gives_a_finite_model(case, kind):
    _try_all(case, kind, whole=True)


@pytest.mark.parametrize("kinds", [(np.float16, np.int8), (np.float32, np.uint64), (np.longdouble, np.int16)])
@pytest.mark.parametrize("case", CASES)
def test_numbers_of_numpy_s_types_are_as_good_as_python_s(case, kinds):
    make, data = CASES[case]
    estimator = make()
    given = {}
    for name in parameters_with(estimator, "numbers"):
        value = estimator.get_params()[name]
        # a value that the type rounds is another one, and may contradict the rest
        if isinstance(value, float) and float(kinds[0](value)) == value:
            given[name] = kinds[0](value)
        elif isinstance(value, int) and value < 128:
            given[name] = kinds[1](value)
    assert given
    estimator.set_params(**given)
    estimator.fit(*data)
    assert all(estimator.get_params()[name] is value for name, value in given.items()), "fit changed a parameter"
    estimator.card_.verify()
    told = estimator.card_["model"]["parameters"]
    assert all(told[name] == pytest.approx(value.item()) for name, value in given.items() if name in told)
    if hasattr(estimator, "sample"):
        drawn = estimator.sample(20)
        assert np.isfinite(np.asarray(drawn[0] if isinstance(drawn, tuple) else drawn)).all()


def test_every_public_estimator_is_tried():
    public = {getattr(skdpgen, name) for name in skdpgen.__all__}
    tried = {type(make()) for make, _ in CASES.values()}
    assert {one for one in public if isinstance(one, type) and issubclass(one, PrivateEstimator)} <= tried
    for cls in tried:
        names = {name for make, _ in CASES.values() if type(make()) is cls for name in make().get_params(deep=False)}
        kinds = ("numbers", "lists", "flags", "objects")
        covered = {name for kind in kinds for name in parameters_with(_of(cls), kind)}
        assert names - covered <= {"accountant", "param_grid", "estimator", "public_data"}, cls


def _of(cls):
    return next(make() for make, _ in CASES.values() if type(make()) is cls)


# ---- defects that were found, each by itself -----------------------------------------------------------------------
X, Y = CASES["moments"][1]
BEYOND = 10**400


@pytest.mark.parametrize("epsilon", [np.int64(3), np.float32(3), np.float16(3)])
def test_a_search_takes_epsilon_of_any_type(epsilon):
    books = PrivacyAccountant(np.int64(10))
    grid = {"n_components": np.array([1, 2])}
    search = PrivateSearchCV(
        DPPCA(bounds=(-1, 1)), grid, epsilon=epsilon, accountant=books, score_bounds=(-20, 10), runs="logarithmic"
    )
    search.fit(X)
    assert search.get_params()["epsilon"] is epsilon
    assert search.card_["fit"]["epsilon_asked"] == pytest.approx(3.0, rel=1e-3)
    assert len(books.charges) == 1


@pytest.mark.parametrize(
    ("estimator", "parameters"),
    [
        (P3GMSynthesizer(decoder="net"), {"gradient_bound": BEYOND}),
        (P3GMSynthesizer(decoder="net"), {"gradient_bound": 1e308}),
        (P3GMSynthesizer(decoder="net"), {"steps": BEYOND}),
        (P3GMSynthesizer(decoder="net"), {"sampling_rate": 1e-320}),
        (P3GMSynthesizer(), {"l2_bound": BEYOND}),
        (P3GMSynthesizer(), {"image_shape": [0, np.inf]}),
        (P3GMSynthesizer(decoder="net"), {"delta": 0.5}),
        (PriVAESynthesizer(), {"gradient_bound": BEYOND}),
        (DP2VAESynthesizer(), {"batch_size": 0}),
        (DP2VAESynthesizer(), {"batch_size": True}),
        (DPMERFSynthesizer(), {"n_components": 10**9}),
        (DPMERFSynthesizer(), {"hidden_layer_sizes": (65_536, 65_536)}),
        (DPGaussianMixture(), {"n_components": 10**9}),
        (DPNetClassifier(), {"hidden_layer_sizes": (65_536, 65_536)}),
    ],
    ids=str,
)
def test_what_failed_after_the_charge_is_refused_before_it(estimator, parameters):
    books = PrivacyAccountant(10.0)
    with pytest.raises(ValueError, match=next(iter(parameters))):
        set_flat(estimator, accountant=books, **parameters).fit(X, *([Y] if "Classifier" in repr(estimator) else []))
    assert not books.charges


def test_names_that_cannot_be_written_are_refused_before_the_charge():
    surrogate, books = "\ud800", PrivacyAccountant(10.0)
    columns = pd.Index([surrogate, "b", "c", "d"], dtype=object)
    frame = pd.DataFrame(X, columns=columns)
    for estimator, text in (
        (MomentSynthesizer(), "name of a column"),
        (DPPCA(), "name of a column"),
        (PriVAESynthesizer(), "name of a column"),
        (MomentSynthesizer(target=surrogate), "'target'"),
        (MomentSynthesizer(target=[surrogate, "b"]), "'target'"),
        (MomentSynthesizer(importance={surrogate: 2.0}), "'importance'"),
        (MomentSynthesizer(classes=["a", surrogate]), "'classes'"),
    ):
        with pytest.raises(ValueError, match=text):
            estimator.set_params(accountant=books).fit(frame)
    y = pd.Series(Y, name=surrogate)
    for estimator in (MomentSynthesizer(), DPGaussianMixture()):
        with pytest.raises(SchemaError, match="name of y"):
            estimator.set_params(accountant=books).fit(X, y)
    assert not books.charges


def test_a_fit_that_ends_in_values_that_are_not_finite_says_what_was_charged(monkeypatch):
    def fit_model(*arguments):
        model = fit_merf_model(*arguments)
        model.layers[-1][0][0, 0] = np.nan
        return model

    fit_merf_model = _dp_merf.fit_merf_model
    monkeypatch.setattr(_dp_merf, "fit_merf_model", fit_model)
    books, (make, data) = PrivacyAccountant(5.0), CASES["dp-merf"]
    estimator = make().set_params(accountant=books)
    with pytest.raises(FloatingPointError, match=r"not finite.*charge stays: 'DPMERFSynthesizer.*epsilon=1 at delta="):
        estimator.fit(*data)
    assert len(books.charges) == 1
    assert not hasattr(estimator, "model_")


def test_plans_made_by_hand_take_numbers_of_numpy_s_types():
    plan = DPSGDPlan(np.float32(0.5), np.int8(3), np.float16(1), np.float32(2), np.float16(10))
    assert [type(getattr(plan, name)) for name in ("sampling_rate", "steps", "l2_bound")] == [float, int, float]
    subsets = SubsetPlan(np.uint64(5), np.uint64(4), np.float16(1), per_step=np.uint64(2))
    assert subsets.visits == 2
    assert subsets.sampling_rate == 0.4
    for wrong in (1e308, 1e-320):
        with pytest.raises(ValueError, match="l2_bound"):
            DPSGDPlan(0.5, 3, wrong, 2.0, 10.0)
