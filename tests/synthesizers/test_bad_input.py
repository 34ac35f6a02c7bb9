"""Bad input: a clear error, no value of a cell in it, nothing charged, and the fit before it kept."""

from __future__ import annotations

import contextlib
import sqlite3
import traceback
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from _flat import make_flat, set_flat
from torch import nn, optim

import skdpgen
from skdpgen import (
    DPPCA,
    DPGaussianMixture,
    LatentMixture,
    MomentSynthesizer,
    P3GMSynthesizer,
    PrivacyAccountant,
    PriVAESynthesizer,
    Schema,
)
from skdpgen.exceptions import (
    BudgetExceededError,
    DetachedAccountantError,
    InvalidInputError,
    LedgerError,
    SchemaError,
)
from skdpgen.nn import DPNet, P3GMModule
from skdpgen.tabular import Boolean, Categorical, Numeric, TableEncoder
from skdpgen.utils.containers import CHUNK_READERS

pytestmark = pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")  # few rows

RNG = np.random.default_rng(5)
X = RNG.uniform(-1, 1, (60, 3))
Y = RNG.integers(0, 2, 60)
FRAME = pd.DataFrame({"age": RNG.integers(20, 60, 60), "town": RNG.choice(["north", "south"], 60), "ill": Y == 1})
SCHEMA = Schema([Numeric("age", (0, 99), integer=True), Categorical("town", ("north", "south")), Boolean("ill")])
SIGNALLED = (Decimal("1.5"), "north", 2, 0.5, True, pd.Timestamp("2020-01-01"))  # beside a signaling NaN
SECRET = "hunter2"
NUMBER = 987654321.5
SURROGATES = pd.Categorical.from_codes(Y, pd.Index(np.array(["north", "\udc80" + SECRET], dtype=object), dtype=object))
NET = {"decoder": "net", "steps": 2, "warm_start_steps": 1, "sampling_rate": 0.1}


def _with(X, value, row=7, column=1):
    X = X.astype(object) if isinstance(value, str) else X.copy()
    X[row, column] = value
    return X


def _cell(column, value):
    frame = FRAME.astype({column: object} if not isinstance(value, float) else {column: float})
    frame.loc[7, column] = value
    return frame


def _net(**parameters):
    return {**NET, "net": DPNet(P3GMModule, module__n_hidden=4, **parameters)}


ARRAYS = {
    "NaN": ({}, (_with(X, np.nan),), "NaN"),
    "infinity": ({}, (_with(X, np.inf),), "infinity"),
    "NaN in y": ({}, (X, np.where(Y, np.nan, 1.0)), "y contains NaN"),
    "None in y": ({}, (X, np.where(Y, None, SECRET)), "y contains NaN"),
    "infinity in y": ({}, (X, np.where(Y, np.inf, 1.0)), "y contains NaN"),
    "text in an object array": ({}, (_with(X, SECRET),), "not numbers"),
    "an array of text": ({}, (np.full((60, 2), SECRET),), "strings"),
    "text in a numeric y": ({"target_type": "numeric"}, (X, np.full(60, SECRET)), "no number"),
    "dates in y": ({}, (X, np.full(60, np.datetime64("2001-01-01"))), "numbers, text or booleans"),
    "mixed y": ({}, (X, pd.Series([SECRET, *range(59)], dtype=object)), "one kind"),
    "undeclared class": ({"classes": ["a", "b"]}, (X, np.array(["a", SECRET])[Y]), "declared classes"),
    "images as they are": (
        {},
        (np.zeros((60, 4, 4)),),
        r"two dimensions, a row a record; got 3: .*reshape\(len\(X\), -1\), and declare image_shape=\(4, 4\)",
    ),
    "channels first": (
        {},
        (np.zeros((60, 3, 8, 8)),),
        r"X.transpose\(0, 2, 3, 1\).reshape\(len\(X\), -1\), and declare image_shape=\(8, 8, 3\)",
    ),
    "no classes": ({"classes": []}, (X, Y), "at least one"),
    "a class twice": ({"classes": [0, 1, 1]}, (X, Y), "distinct"),
    "outside bounds": ({"bounds": (-1, 1), "on_invalid": "raise"}, (_with(X, NUMBER),), "outside the declared bounds"),
    "bounds upside down": ({"bounds": (1, -1)}, (X,), "lower below the upper"),
    "bounds of other columns": ({"bounds": [(0, 1)] * 2}, (X,), "one pair for each of 3"),
    "bounds by side": ({"bounds": (np.zeros(3), np.ones(3))}, (X,), r"give numpy.column_stack\(\(low, high\)\)"),
    "infinite bounds": ({"bounds": (0, np.inf)}, (X,), "finite"),
    "a masked array": ({}, (np.ma.masked_greater(X, 0.5),), "masked array: give pandas.DataFrame"),
    "records": ({}, (pd.DataFrame(X).to_records(),), "named fields: give pandas.DataFrame"),
    "dates": ({}, (np.zeros((9, 3), dtype="datetime64[D]"),), r"datetime64\[D\]: the synthesizers take a DataFrame"),
    "no rows": ({}, (X[:0],), "0 sample"),
    "no columns": ({}, (X[:, :0],), "0 feature"),
    "one dimension": ({}, (X[:, 0],), "2D array"),
    "three dimensions": ({}, (X.reshape(20, 3, 3),), "dim"),
    "complex": ({}, (X + 1j,), "Complex"),
    "another length of y": ({}, (X, Y[:-1]), "y must have shape"),
    "two columns of y": ({}, (X, np.stack([Y, Y], axis=1)), "y must have shape"),
    "nothing left for the model": ({"budget_split": {"bounds": 0.6}}, (X, Y), "leaves nothing"),
    "schema for an array": ({"schema": SCHEMA}, (X,), "for DataFrames"),
    "target for an array": ({"target": "age"}, (X,), "for DataFrames"),
    "image of another size": ({"image_shape": (2, 2)}, (X,), "does not fit rows"),
    "image with a numeric y": ({"image_shape": (3, 1)}, (X, X[:, 0]), "y must be classes"),
    "components over the limit": ({"n_components": 4}, (X,), "at most 3"),
    "no components": ({"n_components": 0}, (X,), "n_components"),
    "classes without y": ({"classes": [0, 1]}, (X,), "need y"),
    "target_type without y": ({"target_type": "numeric"}, (X,), "need y"),
    "classes of a numeric y": ({"classes": [0, 1]}, (X, X[:, 0]), "categorical y"),
    "text that is no Unicode in y": ({}, (X, np.array(["a", "\udc80" + SECRET], dtype=object)[Y]), "no Unicode"),
    "Bernoulli values of both signs": ({**NET, "likelihood": "bernoulli", "bounds": (-1, 1)}, (X,), "not negative"),
    "class-conditional without y": ({"prior": "class_conditional"}, (X,), "needs a categorical y"),
    "class-conditional on numbers": ({"prior": "class_conditional"}, (X, X[:, 0]), "needs a categorical y"),
}
FRAMES = {
    "NaN": ({"schema": SCHEMA}, (_cell("age", np.nan),), "missing values"),
    "infinity": ({}, (FRAME.assign(age=np.where(Y, np.inf, 1.0)),), "infinite"),
    "undeclared category": ({"schema": SCHEMA}, (_cell("town", SECRET),), "not among its declared categories"),
    "text in a number": ({"schema": SCHEMA}, (_cell("age", SECRET),), "text"),
    "outside bounds": ({"schema": SCHEMA, "on_invalid": "raise"}, (_cell("age", NUMBER),), "integers|outside"),
    "columns missing": ({"schema": SCHEMA}, (FRAME[["age", "town"]],), "ill"),
    "columns twice": ({}, (FRAME[["age", "town", "town"]],), "duplicate column names: 'town'"),
    "target twice": ({"target": "town"}, (FRAME[["age", "town", "town"]],), "duplicate column names: 'town'"),
    "names of several types": ({}, (FRAME.rename(columns={"age": 3}),), "string names"),
    "no rows": ({}, (FRAME[:0],), "0 sample"),
    "no columns": ({}, (FRAME[[]],), "at least one column"),
    "a dtype without a kind": ({}, (FRAME.assign(wave=1j),), "no kind"),
    "mixed values": ({}, (FRAME.assign(town=[SECRET, *range(59)]),), "mixed"),
    "target not there": ({"target": "nobody"}, (FRAME,), "not a column"),
    "target and y": ({"target": "ill"}, (FRAME, Y), "not both"),
    "y named as a column": ({}, (FRAME, pd.Series(Y, name="town")), "name 'town'"),
    "another length of y": ({}, (FRAME, Y[:-1]), "y must have shape"),
    "two columns of y": ({}, (FRAME, np.stack([Y, Y], axis=1)), "y must have shape"),
    "a frame of two columns as y": ({}, (FRAME, pd.DataFrame({"a": Y, "b": Y})), "y must have shape"),
    "bounds for a frame": ({"bounds": (0, 1)}, (FRAME,), "declare schema="),
    "image of a frame": ({"image_shape": (1, 3), "target": "ill"}, (FRAME,), "for arrays"),
    "classes twice declared": ({"schema": SCHEMA, "target": "town", "classes": ["a"]}, (FRAME,), "one of them"),
    "classes of numbers": ({"target": "age", "target_type": "numeric", "classes": [1]}, (FRAME,), "categorical target"),
    "undeclared class": ({"target": "town", "classes": ["north"]}, (_cell("town", SECRET),), "declared categories"),
    "dates as classes": (
        {"target": "day", "target_type": "categorical"},
        (FRAME.assign(day=pd.Timestamp("2001-01-01")),),
        "Datetime",
    ),
    "target_type without a target": ({"target_type": "numeric"}, (FRAME,), "need y or target="),
    "likelihood of a frame": ({**NET, "likelihood": "gaussian"}, (FRAME,), "for arrays"),
    "text that is no Unicode": ({}, (_cell("town", "\udc80" + SECRET),), "no Unicode"),
    "a category that is no Unicode": (
        {},
        (FRAME.assign(town=SURROGATES),),
        "no Unicode",
    ),
    "a column that the schema lacks": (
        {"schema": SCHEMA},
        (FRAME.rename(columns={"ill": "sick"}),),
        "not in the frame",
    ),
}
CONTAINERS = {
    "path of a CSV file": ("secret.csv", r"pandas.read_csv\(path\)"),
    "paths of CSV files": (["secret.csv", "secret.csv"], r"pandas.read_csv\(path\)"),
    "a dict": ({"a": [1.0, 2.0]}, r"give pandas.DataFrame\(X\)"),
    "nothing": (None, "X is None"),
    "a Series": (pd.Series([1.0, 2.0]), r"give X.to_frame\(\)"),
    "a column of lists": (FRAME.assign(town=[[1, 2]] * 60), "'town' .* holds lists, .* make a column of each value"),
    "a column of dicts": (FRAME.assign(town=[{"a": SECRET}] * 60), "'town' .* holds dicts"),
    "a column of sets": (FRAME.assign(town=[{SECRET}] * 60), "'town' .* holds sets"),
    "a column of arrays": (FRAME.assign(town=[np.zeros(2)] * 60), "'town' .* holds arrays"),
    "columns of several levels": (pd.concat({"p": FRAME}, axis=1), r"got tuple: give each column one name"),
    "complex numbers": (FRAME.assign(wave=1j), "its real and its imaginary part"),
}
PARAMETERS = {
    "epsilon 0": ({"epsilon": 0.0}, "epsilon"),
    "epsilon below 0": ({"epsilon": -1}, "epsilon"),
    "epsilon nan": ({"epsilon": np.nan}, "epsilon"),
    "delta 0": ({"delta": 0.0}, "delta"),
    "delta 1": ({"delta": 1.0}, "delta"),
    "delta above 1": ({"delta": 2}, "delta"),
    "no such relation": ({"neighboring": "nobody"}, "neighboring"),
    "no such noise": ({"noise": "quiet"}, "noise"),
    "another relation": ({"neighboring": "replace_one"}, "must match accountant.neighboring"),
    "split of a tuple": ({"budget_split": (1, 1)}, "budget_split"),
    "a split of others": ({"budget_split": {"moments": 1, "decoder": 1}}, "no entry 'moments' here"),
    "a share of 1": ({"budget_split": {"bounds": 1}}, "share of the budget"),
    "negative split": ({"budget_split": {"encoder": 1, "mixture": -1}}, "not negative"),
    "split without an encoder": ({"budget_split": {"decoder": 1}, **NET}, "nothing to the encoder"),
    "split for a decoder that is not": ({"budget_split": {"encoder": 1, "decoder": 1}}, "does not have"),
    "split without a mixture": ({"budget_split": {"encoder": 1}, "prior": "mixture"}, "nothing to the mixture"),
    "preset": ({"preset": "paper/nothing"}, "preset must be"),
    "batch_size without a public count": ({"decoder": "net", "batch_size": 10}, "private under add_or_remove_one"),
    "epochs without a public count": ({"decoder": "net", "epochs": 10}, "private under add_or_remove_one"),
    "sampling_rate above 1": ({"sampling_rate": 1.5}, "sampling_rate"),
    "steps and no decoder": ({"steps": 5}, "steps= of training= is used only with"),
    "a device and no decoder": ({"device": "cpu:0"}, "device= of training= is used only with"),
    "a mixture of none": ({"prior": LatentMixture(0)}, "n_components"),
    "a mixture without steps": ({"prior": LatentMixture(n_iter=0)}, "n_iter"),
    "a preset and what it sets": ({"preset": "paper/adult", "n_components": 2}, "sets n_components"),
    "steps and epochs": ({**NET, "epochs": 2}, "steps and epochs"),
    "sampling_rate and batch_size": ({**NET, "batch_size": 2}, "sampling_rate and batch_size"),
    "a net and no decoder": ({"net": DPNet(P3GMModule)}, "only with decoder='net'"),
    "no net": ({**NET, "net": "a net"}, "must be a DPNet"),
    "no such device": ({**NET, "device": "nothing"}, "device"),
    "BatchNorm": (
        _net(module__decoder=nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))),
        "BatchNorm",
    ),
    "BatchNorm in the encoder": (_net(module__variance=nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 3))), "BatchNorm"),
    "LBFGS": (_net(optimizer=optim.LBFGS), "LBFGS"),
    "a decoder of another shape": (_net(module__decoder=nn.Linear(2, 9)), "does not fit"),
    "no such parameter of the module": (_net(module__colour="red"), "colour"),
    "a loader of other batches": (_net(iterator_train=list), "PoissonLoader"),
}


def _assert_refused(parameters, data, message, errors=(ValueError, TypeError)):
    accountant = PrivacyAccountant(100.0)
    synth = P3GMSynthesizer(epsilon=1.0, accountant=accountant).fit(X)
    before = {name: value for name, value in vars(synth).items() if name not in synth.get_params(deep=False)}
    with pytest.raises(errors, match=message) as caught:
        set_flat(synth, **parameters).fit(*data)
    text = "".join(traceback.format_exception_only(caught.value))
    assert SECRET not in text
    assert "987654" not in text
    assert caught.value.__cause__ is None or SECRET not in str(caught.value.__cause__)
    assert len(accountant.charges) == 1
    after = {name: value for name, value in vars(synth).items() if name not in synth.get_params(deep=False)}
    assert after.keys() == before.keys()
    assert all(after[name] is before[name] for name in before)
    synth.sample(2)


@pytest.mark.parametrize(("parameters", "data", "message"), ARRAYS.values(), ids=ARRAYS)
def test_bad_arrays_are_refused(parameters, data, message):
    _assert_refused(parameters, data, message)


@pytest.mark.parametrize(("parameters", "data", "message"), FRAMES.values(), ids=FRAMES)
def test_bad_frames_are_refused(parameters, data, message):
    _assert_refused(parameters, data, message)


@pytest.mark.parametrize(("parameters", "message"), PARAMETERS.values(), ids=PARAMETERS)
def test_bad_parameters_are_refused(parameters, message):
    _assert_refused(parameters, (X,), message)


@pytest.mark.parametrize("parameter", ["batch_size", "max_epochs", "train_split"])
def test_parameters_that_contradict_the_plan_are_no_parameters(parameter):
    with pytest.raises(ValueError, match="not a parameter of DPNet"):
        make_flat(P3GMSynthesizer, **_net()).set_params(**{f"training__net__{parameter}": 10})


def test_epsilon_none_needs_an_accountant():
    with pytest.raises(ValueError, match="give an accountant"):
        P3GMSynthesizer(epsilon=None).fit(X)
    budget = PrivacyAccountant(1.0)
    P3GMSynthesizer(epsilon=None, accountant=budget).fit(X)
    assert budget.epsilon_spent() == pytest.approx(1.0, rel=1e-3)
    _refused_books(budget, BudgetExceededError, epsilon=None)


def _refused_books(accountant, error, **parameters):
    charges = accountant.charges
    synth = make_flat(P3GMSynthesizer, **{"epsilon": 1.0, **parameters}, accountant=accountant)
    with pytest.raises(error):
        synth.fit(X)
    assert accountant.charges == charges
    assert not hasattr(synth, "card_")


def test_books_that_cannot_be_charged_refuse_the_fit(tmp_path, monkeypatch):
    import pickle
    import sqlite3

    full = PrivacyAccountant(1.0, ledger=tmp_path / "full.db")
    P3GMSynthesizer(epsilon=1.0, accountant=full).fit(X)
    _refused_books(full, BudgetExceededError)
    detached = pickle.loads(pickle.dumps(PrivacyAccountant(9.0)))
    _refused_books(detached, DetachedAccountantError)
    corrupt = PrivacyAccountant(9.0, ledger=tmp_path / "corrupt.db")
    (tmp_path / "corrupt.db").write_bytes(b"SQLite format 3\0" + b"x" * 4000)
    with pytest.raises(LedgerError):
        P3GMSynthesizer(epsilon=1.0, accountant=corrupt).fit(X)
    locked = PrivacyAccountant(9.0, ledger=tmp_path / "locked.db")
    connect = sqlite3.connect

    def read_only(*args, **options):
        # stands for a disk that cannot be written: root may write to read-only files
        connection = connect(*args, **options)
        connection.execute("PRAGMA query_only = ON")
        return connection

    monkeypatch.setattr(sqlite3, "connect", read_only)
    _refused_books(locked, LedgerError)


def test_rows_unlike_those_of_fit_are_refused():
    synth = P3GMSynthesizer(epsilon=1.0).fit(X)
    for method in (synth.transform, synth.score):
        for wrong, message in (
            (X[:, :2], "2 features"),
            (_with(X, np.nan), "NaN"),
            (_with(X, SECRET), "not numbers"),
            (X[0], "2D"),
        ):
            with pytest.raises(ValueError, match=message) as caught:
                method(wrong)
            assert SECRET not in str(caught.value)
    synth = P3GMSynthesizer(epsilon=5.0, schema=SCHEMA).fit(FRAME)
    for wrong, message in (
        (FRAME[["town", "age", "ill"]], "order"),
        (FRAME[["age", "town"]], "missing"),
        (FRAME.assign(more=1), "unseen at fit"),
        (_cell("town", SECRET), "declared categories"),
        (FRAME.to_numpy(), "give a DataFrame"),
    ):
        with pytest.raises(ValueError, match=message) as caught:
            synth.transform(wrong)
        assert SECRET not in str(caught.value)


def test_errors_about_data_are_of_the_packages_own_kind():
    for data in ((_with(X, SECRET),), (FRAME[["age", "age"]],)):
        with pytest.raises(InvalidInputError):
            P3GMSynthesizer().fit(*data)


@pytest.mark.parametrize("make", [DPPCA, DPGaussianMixture, P3GMSynthesizer])
@pytest.mark.parametrize(
    "column",
    [
        pd.Categorical(["1"] * 59 + [SECRET]), pd.period_range("2020", periods=60, freq="D"), pd.interval_range(0, 60),
        pd.to_datetime(["2020-01-01"] * 60, utc=True), pd.Categorical(["1", "2"] * 30), ["1"] * 59 + ["nan"],
        pd.array(["1"] * 59 + ["1e400"], dtype="string"), [1j] * 60, [{SECRET: 1}] * 60,
    ],
    ids=lambda column: str(getattr(column, "dtype", type(column[-1]).__name__)),
)  # fmt: skip
def test_odd_dtypes_fit_or_are_refused_uncharged(make, column):
    accountant = PrivacyAccountant(1.0)
    text = ""
    try:
        make(accountant=accountant).fit(pd.DataFrame({"a": column, "b": np.arange(60.0)}))
    except (ValueError, TypeError) as error:
        text = str(error)
    assert bool(text) == (accountant.charges == ())
    assert SECRET not in text


@pytest.mark.parametrize(
    "values", [[Decimal("1.5")] * 59 + [pd.NA], *([v] * 59 + [Decimal("sNaN")] for v in SIGNALLED)]
)
@pytest.mark.parametrize("in_chunks", [False, True])
def test_decimals_that_no_test_for_missing_values_reads_are_refused_by_their_column(values, in_chunks):
    books, frame = PrivacyAccountant(1.0), FRAME.assign(pay=pd.Series(values, dtype=object))
    synth = MomentSynthesizer(1.0, accountant=books)
    with pytest.raises(SchemaError, match=r"column 'pay' holds .*give None where a value is missing"):
        synth.fit([frame[:30], frame[30:]] if in_chunks else frame)
    with pytest.raises(InvalidInputError, match=r"(column 'pay'|y) holds|y contains"):
        synth.fit(FRAME if in_chunks else X, frame["pay"])
    assert not books.charges


@pytest.mark.parametrize("make", [DPPCA, DPGaussianMixture, P3GMSynthesizer])
def test_an_array_of_another_shape_is_not_shown(make):
    for array in ([SECRET, "x"], SECRET, np.full(3, NUMBER)):
        with pytest.raises(InvalidInputError, match=r"Expected 2D array.*Reshape your data") as caught:
            make().fit(array)
        assert SECRET not in str(caught.value)
        assert "987654" not in str(caught.value)


def test_more_rows_than_can_be_summed_are_refused_uncharged(monkeypatch):
    monkeypatch.setattr("skdpgen.utils.table_checks.MAX_ROWS", 59)
    for data in ((X,), (FRAME,)):
        accountant = PrivacyAccountant(1.0)
        with pytest.raises(InvalidInputError, match="at most 59 rows"):
            P3GMSynthesizer(accountant=accountant, prior="mixture").fit(*data)
        assert accountant.charges == ()


# ---- containers ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("model", [P3GMSynthesizer, MomentSynthesizer, PriVAESynthesizer])
@pytest.mark.parametrize("name", CONTAINERS)
def test_what_is_no_table_is_refused_with_what_to_give(name, model):
    X, message = CONTAINERS[name]
    accountant = PrivacyAccountant(1.0, 1e-5)
    with pytest.raises(InvalidInputError, match=message) as raised:
        model(accountant=accountant).fit(X)
    assert SECRET not in str(raised.value)
    assert "secret" not in str(raised.value)
    assert not accountant.charges


class _Foreign:
    """A table of another library."""

    columns = ("age", "town")

    def __array__(self, dtype=None, copy=None):
        return FRAME[["age", "town"]].to_numpy(dtype=object)

    def __len__(self):
        return len(FRAME)

    def to_pandas(self):
        return FRAME


@pytest.mark.parametrize("parameters", [{}, {"target": "town"}, {"schema": SCHEMA}])
def test_a_table_of_another_library_is_refused_with_how_to_convert_it(parameters):
    with pytest.raises(InvalidInputError, match=r"cannot give its rows to Arrow: give a DataFrame.*X.to_pandas\(\)"):
        MomentSynthesizer(1.0, **parameters).fit(_Foreign())


class _ForeignDates(_Foreign):
    """Its array is one of numbers, as that of polars is: dates are their microseconds."""

    columns = ("age", "admitted")
    shape = (len(FRAME), 2)

    def __array__(self, dtype=None, copy=None):
        return np.stack([FRAME["age"].to_numpy(), np.arange(len(FRAME))], axis=1)

    def __getitem__(self, name):
        return FRAME["age"].to_numpy() if name == "age" else np.arange(len(FRAME)).astype("datetime64[us]")


class _ForeignNumbers(_ForeignDates):
    def __getitem__(self, name):
        return FRAME["age"].to_numpy()


@pytest.mark.parametrize("table", [_ForeignDates, _ForeignNumbers])
def test_a_table_of_another_library_is_not_taken_for_an_array_of_numbers(table):
    X, accountant = table(), PrivacyAccountant(1.0, 1e-5)
    refused = r"X is a \w+ of \w+, which cannot give its rows to Arrow: give a DataFrame of pandas, X.to_pandas\(\)"
    for model in (P3GMSynthesizer, MomentSynthesizer, PriVAESynthesizer):
        with pytest.raises(InvalidInputError, match=refused):
            model(accountant=accountant).fit(X)
    with pytest.raises(InvalidInputError, match=refused):
        Schema.from_kinds(X)
    if table is _ForeignDates:
        for model in (DPPCA, DPGaussianMixture):
            with pytest.raises(InvalidInputError, match="columns that are not numbers"):
                model(accountant=accountant).fit(X)
        with pytest.raises(InvalidInputError, match=refused):
            TableEncoder().fit(X)
    assert not accountant.charges


def test_estimators_of_arrays_take_a_table_of_numbers_of_another_library():
    pca = DPPCA(1, epsilon=1.0, bounds=(0, 100), l2_bound=10.0).fit(_ForeignNumbers())
    assert pca.n_features_in_ == 2


def test_a_path_that_is_no_parquet_file_is_refused_with_how_to_read_it(tmp_path):
    with pytest.raises(InvalidInputError, match=r"read a CSV file by pandas.read_csv\(path\)"):
        MomentSynthesizer(1.0).fit(tmp_path / "rows.csv")


@pytest.mark.parametrize("path", ["ledger.db", Path("ledger.db")])
def test_a_ledger_file_in_place_of_an_accountant_is_refused_with_how_to_open_it(path):
    for model in (MomentSynthesizer, DPPCA):
        with pytest.raises(ValueError, match=r"PrivacyAccountant\(epsilon, delta, ledger=path\)"):
            model(accountant=path).fit(np.zeros((30, 2)))


CHUNKS = {
    "a list": (lambda: [FRAME[["age"]], FRAME[["age"]]], "a list of tables"),
    "a generator": (lambda: (part for part in [FRAME[["age"]]]), "a generator"),
    "a function": (lambda: lambda: iter([FRAME[["age"]]]), "a function"),
}


@pytest.mark.parametrize("kind", CHUNKS)
@pytest.mark.parametrize("estimator", [DPPCA, DPGaussianMixture, PriVAESynthesizer])
def test_chunks_for_an_estimator_that_reads_none_name_those_that_do(estimator, kind):
    make, said = CHUNKS[kind]
    accountant = PrivacyAccountant(1.0, 1e-5)
    with pytest.raises(
        InvalidInputError, match=f"X is {said}, and {estimator.__name__} takes the rows at once"
    ) as error:
        estimator(accountant=accountant).fit(make())
    assert CHUNK_READERS in str(error.value)
    assert not accountant.charges


def test_the_estimators_that_read_chunks_are_those_that_messages_name():
    made = {name: getattr(skdpgen, name) for name in CHUNK_READERS.replace(" and ", ", ").split(", ")}
    for make in made.values():
        assert make(1.0).plan([FRAME[["age"]][:30], FRAME[["age"]][30:]])


class _Cursor:
    """A cursor of a database whose rows become a DataFrame by `df`."""

    def fetchall(self):
        raise AssertionError

    df = fetchall


def test_a_cursor_and_a_connection_of_a_database_are_refused_with_how_to_read_a_query():
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        for model in (MomentSynthesizer(1.0), PriVAESynthesizer(1.0), DPPCA(epsilon=1.0)):
            for X in (connection, connection.execute("select 1")):
                with pytest.raises(InvalidInputError, match=r"give pandas.read_sql\(query, connection\)"):
                    model.fit(X)
            with pytest.raises(InvalidInputError, match=r"give X.df\(\)"):
                model.fit(_Cursor())


def test_a_list_of_dicts_is_refused_with_the_table_to_give():
    for model in (MomentSynthesizer(1.0), DPPCA(epsilon=1.0)):
        with pytest.raises(InvalidInputError, match=r"X is a list of dicts: give pandas.DataFrame\(X\)"):
            model.fit(FRAME.to_dict("records"))


@pytest.mark.parametrize("X", [FRAME.groupby("town"), {1, 2}, object()], ids=lambda X: type(X).__name__)
def test_an_object_that_is_no_table_and_no_array_is_named(X):
    for model in (MomentSynthesizer(1.0), DPPCA(epsilon=1.0)):
        with pytest.raises(
            InvalidInputError,
            match=rf"X is a {type(X).__name__}, which is neither a table nor an array: give a DataFrame",
        ):
            model.fit(X)


def test_columns_in_place_of_a_schema_are_refused_with_the_schema_to_make():
    first = SCHEMA.columns[0]
    for columns, rest in (
        (SCHEMA.columns, ", ..."),
        (list(SCHEMA.columns), ", ..."),
        ({column.name: column for column in SCHEMA.columns}, ", ..."),
        ([first], ""),
        (first, ""),
    ):
        with pytest.raises(ValueError, match="schema= takes a Schema of columns: ") as error:
            MomentSynthesizer(1.0, schema=columns).fit(FRAME)
        assert str(error.value).endswith(f": schema=skdpgen.Schema([Numeric('age', ...){rest}])")
