"""No message shows a cell: rows in the place of a parameter, rows that a fitted model takes, readers that fail."""

from __future__ import annotations

import traceback
import warnings

import numpy as np
import pandas as pd
import pytest
from _nasty import CASES, Charged, _watched
from joblib import parallel_config

from skdpgen import (
    DPPCA,
    DPSGD,
    DP2VAESynthesizer,
    DPGaussianMixture,
    MomentSynthesizer,
    P3GMSynthesizer,
    PrivacyAccountant,
    PrivacyUnit,
    PriVAESynthesizer,
    Schema,
    SubsetSGD,
)
from skdpgen._parameters import ParameterObject
from skdpgen.audit import audit
from skdpgen.dpsgd import DPSGDPlan
from skdpgen.exceptions import InvalidInputError
from skdpgen.metrics import LatentSpaceDisplay, frechet_distance, prdc
from skdpgen.nn import DPNetClassifier
from skdpgen.tabular import Categorical, Datetime, Numeric, TableEncoder
from skdpgen.utils.printing import shown

pytestmark = [
    pytest.mark.usefixtures("short_fits"),
    pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning"),
    pytest.mark.filterwarnings("ignore:X (has|does not have):UserWarning"),  # of scikit-learn, about names of columns
]

TEXT, NUMBER = "ZQXCANARY", 7319.8642
ROWS = pd.DataFrame({"name": [TEXT, "b"] * 20, "income": [NUMBER, 1.5] * 20})
# The private rows, in each form in which somebody may give them in the place of a parameter.
FORMS = {
    "frame": ROWS,
    "column of text": ROWS["name"],
    "column of numbers": ROWS["income"],
    "array": ROWS.to_numpy(),
    "list of rows": ROWS.to_numpy().tolist(),
    "dict": ROWS.to_dict("list"),
}
FRAME = pd.DataFrame({"k": ["u", "v"] * 20, "n": range(40)})


def shows_a_cell(error):
    """Whether the traceback of an error, with all that it was raised from, shows a private value."""
    text = "".join(traceback.format_exception(error))
    return TEXT in text or str(NUMBER) in text


def refusal(function, *arguments, **parameters):
    """The error of a call, which no message of it may show a cell."""
    with pytest.raises((ValueError, TypeError)) as caught:
        function(*arguments, **parameters)
    assert not shows_a_cell(caught.value)
    return str(caught.value)


# ---- in the place of a parameter -----------------------------------------------------------------------------------
def _parameters():
    """Parameters of the public estimators, those of their objects too: of each class once, by the case that has it."""
    seen, found = set(), {}
    for case, (make, _) in CASES.items():
        estimator, names = make(), []
        for name, held in estimator.get_params(deep=False).items():
            inner = held.get_params(deep=False) if isinstance(held, ParameterObject) else ()
            names += [name, *(f"{name}__{part}" for part in inner)]
        if new := [name for name in names if (type(estimator), name) not in seen]:
            found[case] = new
            seen.update((type(estimator), name) for name in new)
    return found


PARAMETERS = _parameters()


@pytest.mark.parametrize("case", PARAMETERS)
def test_rows_in_the_place_of_a_parameter_are_refused_uncharged_and_not_shown(case):
    make, data = CASES[case]
    for name in PARAMETERS[case]:
        for form, rows in FORMS.items():
            for fitted in (data, (FRAME,)) if form in ("frame", "column of text") else (data,):
                with _watched(stop=True), warnings.catch_warnings(record=True) as said, parallel_config("threading"):
                    warnings.simplefilter("always")
                    try:
                        make().set_params(**{name: rows}).fit(*fitted)
                    except Charged:
                        continue
                    except (ValueError, TypeError) as error:
                        shown_cell = shows_a_cell(error)
                    else:
                        pytest.fail(f"{name} took a {form}")
                assert not shown_cell, (name, form)
                assert not any(TEXT in str(one.message) or str(NUMBER) in str(one.message) for one in said)


def test_a_message_says_of_what_type_and_size_the_rows_are():
    assert refusal(P3GMSynthesizer(ROWS).fit, ROWS).endswith("Got a DataFrame of shape (40, 2) instead.")
    unit = PrivacyUnit(ROWS["name"].tolist())
    assert refusal(P3GMSynthesizer(unit=unit).fit, ROWS).endswith("or None. Got a list of length 40 instead.")
    assert refusal(P3GMSynthesizer(noise="slow").fit, ROWS).endswith("Got 'slow' instead.")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "None"), (True, "True"), (0.5, "0.5"), (np.int8(3), repr(np.int8(3))), ("a", "'a'"),
        ((0, "b"), "(0, 'b')"), ([1, 2, 3], "[1, 2, 3]"), ([], "[]"),
        (pd.Timestamp("2020-01-01"), repr(pd.Timestamp("2020-01-01"))),
        ([[1, 2]], "a list of length 1"), (list("abcdef"), "a list of length 6"), ({"a": 1}, "a dict of length 1"),
        ("x" * 300, "a str of length 300"), (b"abc", "a bytes of length 3"), (np.zeros(3), "an ndarray of shape (3,)"),
        (np.zeros(2, dtype="f8,f8")[0], "a void of shape ()"), (pd.Index([1]), "an Index of shape (1,)"),
        (PrivacyUnit(ROWS), "a PrivacyUnit"), (PrivacyUnit, "the class PrivacyUnit"), (object(), "an object"),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_short_values_are_shown_and_of_all_others_the_type_and_size(value, text):
    assert shown(value) == text


@pytest.mark.parametrize("form", FORMS)
def test_what_else_takes_parameters_shows_no_rows(form):
    rows = FORMS[form]
    for function in (
        PrivacyAccountant,
        lambda given: PrivacyAccountant(1.0, unit=given),
        lambda given: PrivacyAccountant(1.0, delta=given),
        lambda given: PrivacyAccountant(1.0, neighboring=given),
        lambda given: DPSGDPlan(given, 2, 1.0, 1.0, 4.0),
        lambda given: Numeric("income", given),
        lambda given: Numeric("income", (0, 1), spikes=given),
        lambda given: Datetime("seen", given),
        lambda given: TableEncoder(n_bins=given).fit(FRAME),
        lambda given: TableEncoder(numeric=given).fit(FRAME),
        lambda given: audit(MomentSynthesizer(1.0), FRAME, n_runs=given),
    ):
        refusal(function, rows)


@pytest.mark.parametrize("classes", [ROWS["name"], ROWS["name"].to_numpy(), ROWS["name"].tolist()], ids=type)
def test_classes_that_repeat_are_not_shown_where_they_may_be_the_labels_of_rows(classes):
    for make in (DPGaussianMixture, DPNetClassifier):
        assert "the same class twice; got a" in refusal(make(classes=classes).fit, ROWS[["income"]], ROWS["name"])
    assert "a value of a" in refusal(Categorical, "name", ROWS["name"])


@pytest.fixture(scope="module")
def table_model():
    return MomentSynthesizer(50.0, target="k").fit(pd.concat([FRAME] * 10))


@pytest.mark.parametrize("form", FORMS)
def test_a_sample_that_is_asked_for_by_rows_shows_none(table_model, form):
    rows = FORMS[form]
    refusal(table_model.sample, rows)
    refusal(table_model.sample, 5, class_ratio=rows)
    refusal(table_model.sample, 5, given={"n": rows})
    refusal(table_model.sample, 5, given={"n": (rows, None)})
    if form != "list of rows":
        refusal(table_model.sample, 5, given={"k": rows})


# ---- rows that a fitted model takes --------------------------------------------------------------------------------
N = 60
RNG = np.random.default_rng(0)
X, Y = RNG.random((N, 3)), RNG.integers(0, 2, N)
TABLE = pd.DataFrame(X, columns=list("abc")).assign(k=np.where(Y, "u", "v"))
_ARRAY, _CLASSES, _STEPS = (
    {"bounds": (0, 1)},
    {"bounds": (0, 1), "classes": [0, 1]},
    {"training": DPSGD(3, 0.1, warm_start_steps=0)},
)
FITS = {
    "pca": lambda: DPPCA(2, epsilon=5.0, **_ARRAY).fit(X),
    "mixture": lambda: DPGaussianMixture(2, epsilon=5.0, **_CLASSES).fit(X, Y),
    "classifier": lambda: DPNetClassifier(5.0, steps=3, **_CLASSES).fit(X, Y),
    "p3gm": lambda: P3GMSynthesizer(5.0, **_CLASSES).fit(X, Y),
    "p3gm, numeric y": lambda: P3GMSynthesizer(5.0, **_ARRAY).fit(X, RNG.random(N)),
    "privae": lambda: PriVAESynthesizer(5.0, **_CLASSES, **_STEPS).fit(X, Y),
    "privae, numeric y": lambda: PriVAESynthesizer(5.0, **_ARRAY, **_STEPS).fit(X, RNG.random(N)),
    "privae, table": lambda: PriVAESynthesizer(5.0, target="k", **_STEPS).fit(TABLE),
    "dp2-vae": lambda: DP2VAESynthesizer(5.0, training=SubsetSGD(20, 3, warm_start_steps=1), **_CLASSES).fit(X, Y),
    "moments": lambda: MomentSynthesizer(5.0, target="k").fit(TABLE),
    "moments, series of y": lambda: MomentSynthesizer(5.0).fit(TABLE, pd.Series(Y, name="t")),
}
METHODS = ("transform", "inverse_transform", "score", "score_samples", "reconstruct", "predict", "predict_proba")
WRONG_ROWS = {
    "text in a column of numbers": TABLE.assign(a=TEXT),
    "an unknown category": TABLE.assign(k=TEXT),
    "tuples": TABLE.assign(k=pd.Series([(TEXT, 1)] * N)),
    "a number out of bounds": TABLE.assign(a=NUMBER),
    "another column": TABLE.rename(columns={"a": TEXT.lower()}),
    "array of text": np.array([[TEXT] * 3] * N),
    "array of objects": np.array([[NUMBER, TEXT, None]] * N, dtype=object),
    "list": [[TEXT, 1, 2]] * N,
    "text": TEXT,
    "dict": {"a": [NUMBER]},
    "one column": pd.Series([NUMBER] * N),
    "another width": np.full((N, 4), NUMBER),
    "one dimension": np.full(N, NUMBER),
}
WRONG_LABELS = {
    "text": [TEXT] * N,
    "array of text": np.array([TEXT] * N),
    "series": pd.Series([TEXT] * N),
    "categories": pd.Series([TEXT] * N, dtype="category"),
    "text and missing": [None, TEXT] * (N // 2),
    "tuples": [(TEXT, 1)] * N,
    "numbers": [NUMBER] * N,
    "two columns": np.full((N, 2), NUMBER),
    "one": [TEXT],
    "a moment": pd.Timestamp("7319-01-01"),
    "a text": TEXT,
}


@pytest.mark.parametrize("name", FITS)
def test_no_method_of_a_fitted_model_shows_a_cell_of_rows_that_it_refuses(name):
    model, refused = FITS[name](), 0
    good = TABLE if name.startswith("moments") or "table" in name else X
    for method in filter(lambda method: hasattr(model, method), METHODS):
        calls = [(getattr(model, method), (rows,)) for rows in WRONG_ROWS.values()]
        if "score" in method or method == "reconstruct":
            calls += [(getattr(model, method), (good, labels)) for labels in WRONG_LABELS.values()]
        for call, given in calls:  # a call that the model accepts shows nothing either
            try:
                call(*given)
            except (ValueError, TypeError, AttributeError) as error:
                shown_cell, refused = shows_a_cell(error) or "7319" in str(error), refused + 1
            else:
                continue
            assert not shown_cell, (method, [type(one) for one in given])
    assert refused > 5 or not any(hasattr(model, method) for method in METHODS)


def test_scores_of_a_classifier_are_those_of_its_labels():
    model = FITS["classifier"]()
    right = model.predict(X) == Y
    for labels in (Y, Y.tolist(), pd.Series(Y), pd.Series(Y, dtype="Int64"), Y[:, None]):
        assert model.score(X, labels) == right.mean()
    assert model.score(X, Y, sample_weight=right) == 1.0
    assert model.score(X, Y + 5) == 0.0
    with pytest.raises(InvalidInputError, match="both be text, or both numbers"):
        model.score(X, Y.astype(str))


@pytest.mark.parametrize("wrong", ["text in a column of numbers", "array of text", "array of objects", "list", "text"])
def test_an_encoder_of_tables_shows_no_cell(wrong):
    rows = WRONG_ROWS[wrong]
    schema = Schema([*(Numeric(name, (0, 1)) for name in "abc"), Categorical("k", ("u", "v"))])
    encoder = TableEncoder(schema).fit(TABLE)
    for method in (TableEncoder(schema).fit, encoder.transform, encoder.codes, encoder.inverse_transform):
        refusal(method, rows)


@pytest.mark.parametrize(
    "metric",
    [frechet_distance, prdc, lambda real, wrong: LatentSpaceDisplay.from_estimator(FITS["mixture"](), wrong)],
)
def test_metrics_of_arrays_show_no_cell(metric):
    wrong = X.astype(object)
    wrong[3, 1] = TEXT
    assert "must hold numbers alone" in refusal(metric, X, wrong)


# ---- readers of the caller's that fail -----------------------------------------------------------------------------
def _failing(chunks=(), fails=lambda: True):
    """A function of chunks that fails after some of them."""

    def make_chunks():
        yield from chunks
        if fails():
            raise ValueError(f"could not convert string to float: {TEXT!r}")

    return make_chunks


def _fails_at_once():
    raise OSError(TEXT)


@pytest.mark.parametrize(
    ("function", "kind"),
    [(_failing(), "ValueError"), (_failing([TABLE]), "ValueError"), (_fails_at_once, "OSError")],
)
def test_an_error_of_the_function_of_chunks_is_named_by_its_kind_alone(function, kind):
    accountant = PrivacyAccountant(1.0)
    text = refusal(MomentSynthesizer(1.0, accountant=accountant).fit, function)
    assert f"the function of chunks failed ({kind})" in text
    assert "call it and read its chunks yourself" in text
    assert not accountant.charges


def test_an_error_of_the_function_of_chunks_in_a_pass_after_the_charge_shows_no_cell():
    accountant = PrivacyAccountant(1.0)
    function = _failing([TABLE[:30], TABLE[30:]], lambda: accountant.charges)
    text = refusal(MomentSynthesizer(1.0, accountant=accountant).fit, function)
    assert "the function of chunks failed (ValueError)" in text
    assert len(accountant.charges) == 1


def test_what_is_wrong_with_the_chunks_themselves_is_still_said():
    for chunks, message in (
        (lambda: [TABLE, None], "every chunk must be a DataFrame"),
        (["no.parquet"], "no such file"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            MomentSynthesizer(1.0).fit(chunks)


def test_an_error_in_a_partition_of_dask_is_named_by_its_kind_alone():
    dataframe = pytest.importorskip("dask.dataframe")

    def broken(part):
        raise ValueError(TEXT)

    table = dataframe.from_pandas(TABLE, npartitions=2).map_partitions(broken, meta=TABLE[:0])
    for unit in (None, "k"):
        text = refusal(MomentSynthesizer(1.0, unit=unit).fit, table)
        assert "the dask DataFrame failed (ValueError)" in text


@pytest.mark.parametrize("make", ["from_pandas", "array"])
def test_an_error_of_an_array_of_dask_is_named_by_its_kind_alone(make):
    dataframe = pytest.importorskip("dask.dataframe")

    def broken(part):
        raise ValueError(TEXT)

    numbers = pd.DataFrame({"a": np.arange(40.0), "b": np.arange(40.0)})
    table = dataframe.from_pandas(numbers, npartitions=2).map_partitions(broken, meta=numbers[:0])
    rows, kind = (table, "DataFrame") if make == "from_pandas" else (table.to_dask_array(lengths=[20, 20]), "Array")
    for estimator in (DPPCA(1), DPGaussianMixture(1)):
        assert f"the {kind} of dask failed (ValueError)" in refusal(estimator.fit, rows)


def test_an_error_of_another_library_is_not_repeated():
    class Table:
        columns = ("a", "b")

        def to_pandas(self):
            raise RuntimeError(TEXT)

        def __array__(self, *arguments, **options):
            raise RuntimeError(TEXT)

        def __getitem__(self, name):
            raise RuntimeError(TEXT)

    assert "give a DataFrame of pandas" in refusal(DPPCA(1).fit, Table())
