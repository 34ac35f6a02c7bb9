"""What leaves through the inverse of a pipeline's steps was charged, declared public, or never learned."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    QuantileTransformer,
    StandardScaler,
    TargetEncoder,
)

from skdpgen import (
    DPPCA,
    DPSGD,
    DPGaussianMixture,
    DPVAESynthesizer,
    MomentSynthesizer,
    P3GMSynthesizer,
    PrivacyAccountant,
    PrivatePipeline,
    TableEncoder,
    sample_pipeline,
)
from skdpgen.exceptions import PrivacyLeakWarning, UtilityWarning
from skdpgen.nn import DPNetClassifier
from skdpgen.tabular import Numeric, Schema

pytestmark = pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")

X = np.random.default_rng(3).uniform(-1, 1, (400, 3))
CODES = (X > 0).astype(np.int64)


@pytest.mark.parametrize(
    "step", [StandardScaler(), MinMaxScaler(), QuantileTransformer(n_quantiles=10), PCA(3), make_pipeline(PCA(3))]
)
def test_a_step_that_learned_from_the_rows_without_a_charge_is_not_undone(step):
    pipe = Pipeline([("other", step), ("model", MomentSynthesizer(bounds=(-5, 5)))]).fit(X)
    with pytest.raises(ValueError, match=r"'other'.*nothing was charged"):
        sample_pipeline(pipe, 5)
    for public in (("other",), "other"):
        assert sample_pipeline(pipe, 5, public_steps=public).shape == (5, 3)
    with pytest.raises(ValueError, match="no step before the last: 'model'"):
        sample_pipeline(pipe, 5, public_steps=("other", "model"))


def test_an_encoder_is_undone_where_its_categories_were_declared():
    declared = {"categories": [[0, 1]] * 3}
    for encoder in (OrdinalEncoder, OneHotEncoder):
        pipe = make_pipeline(encoder(**declared), FunctionTransformer(), DPPCA(3, bounds=(0, 1)), DPGaussianMixture())
        if encoder is OneHotEncoder:
            pipe[0].set_params(sparse_output=False)
        assert sample_pipeline(pipe.fit(CODES), 5).shape == (5, 3)
        with pytest.raises(ValueError, match="nothing was charged"):
            sample_pipeline(clone(pipe).set_params(**{f"{pipe.steps[0][0]}__categories": "auto"}).fit(CODES), 5)
    counted = make_pipeline(OneHotEncoder(min_frequency=5, sparse_output=False, **declared), DPGaussianMixture())
    with pytest.raises(ValueError, match="nothing was charged"):
        sample_pipeline(counted.fit(CODES), 5)


def test_steps_with_a_schema_or_without_state_are_undone():
    schema = Schema([Numeric(name, (-1, 1)) for name in "abc"])
    inner = make_pipeline(TableEncoder(schema, numeric="scale"), FunctionTransformer())
    pipe = make_pipeline(inner, "passthrough", MomentSynthesizer(bounds=(-1, 1)))
    rows = sample_pipeline(pipe.fit(pd.DataFrame(X, columns=list("abc"))), 6)
    assert list(rows.columns) == list("abc")


def test_a_step_of_which_nothing_is_known_is_not_undone():
    class Unknown:
        def fit(self, X, y=None):
            return self

        def transform(self, X):
            return X

        inverse_transform = transform

    pipe = Pipeline([("unknown", Unknown()), ("model", MomentSynthesizer(bounds=(-1, 1)))])
    pipe[-1].fit(X)
    with pytest.raises(ValueError, match="'unknown'"):
        sample_pipeline(pipe, 5)


# ---- the card, and a pipeline that looks at its steps --------------------------------------------------------------
def _private(*steps, **options):
    return PrivatePipeline([(f"step{k}", step) for k, step in enumerate(steps)], **options)


def test_the_range_of_the_rows_left_through_a_scaler_and_is_now_refused_by_both_pipelines():
    steps = (MinMaxScaler(), MomentSynthesizer(bounds=(0, 1), l2_bound=2.0))
    plain = make_pipeline(*steps).fit(X)
    undone = plain[0].inverse_transform(np.array([[0.0] * 3, [1.0] * 3]))
    assert np.allclose(undone, [X.min(axis=0), X.max(axis=0)])  # what an inverse would give away
    with pytest.raises(ValueError, match="'minmaxscaler'"):
        sample_pipeline(plain, 5)
    with pytest.warns(PrivacyLeakWarning, match=r"'step0' \(MinMaxScaler\) learns from the rows"):
        private = _private(*map(clone, steps)).fit(X)
    with pytest.raises(ValueError, match="'step0'"):
        private.sample(5)


def test_a_pipeline_that_cannot_sample_says_so_before_the_charge():
    accountant = PrivacyAccountant(1.0)
    model = MomentSynthesizer(bounds=(-9, 9), l2_bound=9.0, accountant=accountant)
    columns = ColumnTransformer([("all", "passthrough", [0, 1, 2])])
    pipe = _private(columns, model, public_steps="step0")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UtilityWarning)
        with pytest.raises(UtilityWarning, match=r"'step0' \(ColumnTransformer\) has no inverse_transform"):
            pipe.fit(X)
        assert not accountant.charges
    with pytest.warns(UtilityWarning, match="its last step alone can sample"):
        pipe.fit(X)
    assert pipe[-1].sample(3).shape == (3, 3)
    with pytest.raises(TypeError, match="has no inverse_transform"):
        pipe.sample(3)


def test_a_step_that_is_declared_public_stands_on_the_cards_after_it():
    frozen = FrozenEstimator(StandardScaler().fit(np.array([[-1.0] * 3, [1.0] * 3])))
    books = PrivacyAccountant(4.0)
    first = DPPCA(2, epsilon=1.0, bounds=(-2, 2), accountant=books)
    pipe = _private(frozen, first, DPGaussianMixture(accountant=books), public_steps="step0").fit(X)
    stated = "step 'step0' (FrozenEstimator) of the pipeline: declared public by the caller"
    for _, step in pipe.steps[1:]:
        assert step.card_["public_assumptions"].count(stated) == 1
        step.card_.verify()
    assert pipe.sample(4).shape == (4, 3)
    plain = make_pipeline(frozen, MomentSynthesizer(bounds=(-2, 2), l2_bound=4.0)).fit(X)
    before = plain[-1].card_
    for _ in range(2):
        sample_pipeline(plain, 4, public_steps=("frozenestimator",))
    assert len(plain[-1].card_["public_assumptions"]) == len(before["public_assumptions"]) + 1
    plain[-1].card_.verify()


def test_a_pipeline_warns_before_the_charge_and_of_no_honest_step():
    books = PrivacyAccountant(4.0)
    model = MomentSynthesizer(bounds=(-5, 5), l2_bound=9.0, accountant=books)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyLeakWarning)
        with pytest.raises(PrivacyLeakWarning, match="StandardScaler"):
            _private(StandardScaler(), model).fit(X)
        assert books.charges == ()
        with pytest.raises(ValueError, match="no step before the last: 'other'"):
            _private(StandardScaler(), model, public_steps=("other",)).fit(X)
        for step in (FunctionTransformer(), Normalizer(), "passthrough", DPPCA(3, bounds=(-1, 1), epsilon=0.1)):
            _private(step, clone(model).set_params(epsilon=0.5, accountant=None)).fit(X)
        codes = OrdinalEncoder(categories=[[0, 1]] * 3)
        _private(codes, clone(model).set_params(epsilon=0.5, accountant=None)).fit(CODES)
        _private(DPPCA(2, bounds=(-1, 1)), StandardScaler()).fit(X)  # after the private step: of released values


IDS = np.repeat(np.arange(200), 2)


def _of_units(make, *, most=(2, 2), nested=False):
    pca = DPPCA(2, epsilon=1.0, bounds=(-1, 1), max_rows_per_unit=most[0])
    mixture = DPGaussianMixture(2, epsilon=1.0, bounds=(-2, 2), max_rows_per_unit=most[1])
    first = Pipeline([("pca", pca)]) if nested else pca
    return make([("inner" if nested else "pca", first), ("mixture", mixture)])


@pytest.mark.parametrize(
    ("given", "most", "nested", "said"),
    [
        (("pca",), (2, None), False, r"a unit \('pca'\), and others one row \('mixture'\).*pca__groups=..., mix"),
        (("mixture",), (None, 2), False, r"a unit \('mixture'\), and others one row \('pca'\)"),
        (("inner__pca",), (2, None), True, r"a unit \('inner__pca'\), and others one row \('mixture'\)"),
        (("pca", "mixture"), (2, 2), False, None),
        (("inner__pca", "mixture"), (2, 2), True, None),
        ((), (None, None), False, None),
    ],
)
def test_steps_of_units_beside_steps_of_rows_are_warned_of_before_the_charge(given, most, nested, said):
    groups = {f"{name}__groups": IDS for name in given}
    pipeline = _of_units(PrivatePipeline, most=most, nested=nested)
    plain = _of_units(Pipeline, most=most, nested=nested).fit(X, **groups)  # which cannot know
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyLeakWarning)
        if said is None:
            pipeline.fit(X, **groups)
            assert sample_pipeline(plain, 4).shape == pipeline.sample(4).shape == (4, 3)
            return
        with pytest.raises(PrivacyLeakWarning, match=said):
            pipeline.fit(X, **groups)
        assert not hasattr(pipeline[0], "card_")
        assert not hasattr(pipeline[0], "components_")
        with pytest.raises(PrivacyLeakWarning, match=said):  # by the cards, which are public
            sample_pipeline(plain, 4)


@pytest.mark.parametrize("asked", [(True, True), ("persons", True), (True, False), (True, None)])
def test_steps_of_units_are_known_where_their_identifiers_are_routed(asked):
    every = all(asked)
    with config_context(enable_metadata_routing=True), warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyLeakWarning)
        pipeline = _of_units(PrivatePipeline, most=(2, 2 if every else None))
        for (_, step), request in zip(pipeline.steps, asked):
            step.set_fit_request(groups=request)
        given = {"groups": IDS} | ({"persons": IDS} if "persons" in asked else {})
        if every:
            assert pipeline.fit(X, **given).sample(4).shape == (4, 3)
        else:
            with pytest.raises(PrivacyLeakWarning, match="protect all rows of a unit"):
                pipeline.fit(X, **given)


def test_a_private_pipeline_is_a_pipeline_of_scikit_learn():
    pipe = _private(FunctionTransformer(), DPPCA(2, bounds=(-1, 1)), public_steps=("step0",))
    copy = clone(pipe)
    assert copy.public_steps == ("step0",)
    assert copy.set_params(step1__n_components=1).fit_transform(X).shape == (400, 1)
    assert "step 'step0'" in copy[-1].card_["public_assumptions"][-1]
    assert not hasattr(copy, "sample")
    assert not hasattr(copy, "fit_predict")
    mixture = _private(FunctionTransformer(), DPGaussianMixture(2, bounds=(-1, 1)))
    assert hasattr(mixture, "fit_predict") == hasattr(DPGaussianMixture(), "fit_predict")
    assert isinstance(pipe[:1], PrivatePipeline)


# ---- steps that look like others, and steps within steps --------------------------------------------------------
def test_an_encoder_that_learns_from_y_or_counts_rows_does_not_pass_for_declared_categories():
    declared, y = {"categories": [[0, 1]] * 3}, CODES[:, 0]
    model = DPNetClassifier(1.0, bounds=(0, 1), classes=(0, 1), steps=1, sampling_rate=0.1)
    counting = [
        OneHotEncoder(sparse_output=False, **{name: 1}, **declared) for name in ("min_frequency", "max_categories")
    ]
    counting += [OrdinalEncoder(**{name: 2}, **declared) for name in ("min_frequency", "max_categories")]
    for step in (TargetEncoder(cv=2, **declared), *counting):
        with warnings.catch_warnings():
            warnings.simplefilter("error", PrivacyLeakWarning)
            with pytest.raises(PrivacyLeakWarning, match="learns from the rows"):
                _private(step, clone(model)).fit(CODES, y)


INNER = {
    "before an inner pipeline": (lambda: [StandardScaler(), make_pipeline(_pca())], "step0"),
    "in an inner pipeline": (lambda: [make_pipeline(StandardScaler(), _pca())], "step0__standardscaler"),
    "two pipelines deep": (
        lambda: ["passthrough", make_pipeline(make_pipeline(StandardScaler(), _pca()), DPGaussianMixture())],
        "step1__pipeline__standardscaler",
    ),
    "before an inner private pipeline": (lambda: [StandardScaler(), _private(Normalizer(), _pca())], "step0"),
    "before a search of a private step": (
        lambda: [StandardScaler(), GridSearchCV(_pca(), {"n_components": [1]}, scoring=lambda *_: 0.0)],
        "step0",
    ),
    "in an inner pipeline before another private step": (
        lambda: [make_pipeline(StandardScaler()), DPGaussianMixture(bounds=(-5, 5))],
        "step0",
    ),
}


def _pca():
    return DPPCA(2, bounds=(-5, 5))


@pytest.mark.parametrize("case", INNER)
def test_a_step_that_learns_before_a_private_one_is_found_wherever_both_are(case):
    make, name = INNER[case]
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyLeakWarning)
        with pytest.raises(PrivacyLeakWarning, match=rf"step '{name}' \("):
            _private(*make()).fit(X)
        if "search" not in case:  # which warns of its exact scores
            assert _private(*make(), public_steps=name).fit(X)


WITHIN = {
    "columns": (lambda step: ColumnTransformer([("part", step, [0, 1])]), "step0__part__standardscaler"),
    "union": (lambda step: FeatureUnion([("part", step)]), "step0__part__standardscaler"),
    "search": (
        lambda step: GridSearchCV(step, {"dppca__n_components": [1]}, scoring=lambda *_: 0.0),
        "step0__estimator__standardscaler",
    ),
}


@pytest.mark.parametrize("case", WITHIN)
def test_a_step_that_learns_before_a_private_one_is_found_in_a_pipeline_that_another_step_has(case):
    """Though the whole stands last, so that no private step comes after it."""
    make, name = WITHIN[case]
    for first, wanted in ((StandardScaler(), True), (Normalizer(), False)):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            _private(make(make_pipeline(first, _pca()))).fit(X)
        leaks = [str(one.message) for one in said if issubclass(one.category, PrivacyLeakWarning)]
        assert any(text.startswith(f"step '{name}' (StandardScaler) learns") for text in leaks) == wanted


@pytest.mark.parametrize("order", ["".join(kinds) for kinds in itertools.product("LP", repeat=3)])
def test_each_step_that_learns_before_any_private_one_is_named_and_no_other(order):
    """L learns from the rows, P is private: what stands between two private steps spoils the card of the second."""
    steps = [StandardScaler() if kind == "L" else _pca() for kind in order]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        _private(*steps).fit(X)
    leaks = [str(one.message) for one in said if issubclass(one.category, PrivacyLeakWarning)]
    wanted = [f"step 'step{k}' (StandardScaler)" for k in range(3) if order[k] == "L" and "P" in order[k:]]
    assert [text.partition(" learns")[0] for text in leaks] == wanted


def test_an_inner_step_that_is_declared_public_stands_on_the_cards_after_it():
    inner = make_pipeline(StandardScaler(), _pca())
    pipe = _private(inner, DPGaussianMixture(), public_steps="step0__standardscaler").fit(X)
    own = PrivatePipeline([("inner", _private(StandardScaler(), _pca(), public_steps="step0"))]).fit(X)
    stated = "step {!r} (StandardScaler) of the pipeline: declared public by the caller"
    for card in (pipe[0][-1].card_, pipe[-1].card_):
        assert stated.format("step0__standardscaler") in card["public_assumptions"]
    assert stated.format("inner__step0") in own[0][-1].card_["public_assumptions"]


def test_what_comes_after_the_last_private_step_is_not_warned_of():
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyLeakWarning)
        _private(make_pipeline(_pca(), StandardScaler()), StandardScaler()).fit(X)


def test_what_is_no_fitted_pipeline_is_refused_with_the_reason():
    with pytest.raises(TypeError, match="not a DPGaussianMixture: call its method sample"):
        sample_pipeline(DPGaussianMixture(), 3)
    with pytest.raises(TypeError, match=r"takes a fitted Pipeline, and not a DPPCA$"):
        sample_pipeline(DPPCA(), 3)
    with pytest.raises(NotFittedError, match="this pipeline is not fitted"):
        sample_pipeline(make_pipeline(StandardScaler(), DPGaussianMixture()), 3)


@pytest.mark.parametrize("kind", ["p3gm", "p3gm of a frame", "network", "pca"])
def test_latents_of_rows_do_not_follow_their_number(kind):
    """In a pipeline they are the rows of the next charged step, where one record may change one row alone."""
    rows = np.random.default_rng(0).random((300, 30))
    if kind == "p3gm of a frame":
        rows = pd.DataFrame(rows[:, :6], columns=list("abcdef"))
    step = {
        "pca": DPPCA(2, bounds=(0, 1), random_state=0),
        "network": DPVAESynthesizer(
            bounds=(0, 1), n_components=2, training=DPSGD(2, 0.1, warm_start_steps=0), random_state=0
        ),
    }.get(kind) or P3GMSynthesizer(random_state=0, **({} if "frame" in kind else {"bounds": (0, 1)}))
    latents = step.set_params(epsilon=100.0).fit(rows).transform(rows)
    for n in (0, 1, 2, 3, 5, 64, 299):
        np.testing.assert_array_equal(step.transform(rows[:n]) if n else latents[:0], latents[:n])
