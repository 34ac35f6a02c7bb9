"""Conditions for which rows are drawn again: what a fit does with rows and learned bounds that violate them."""

import numpy as np
import pandas as pd
import pytest

from skdpgen import PrivacyAccountant
from skdpgen.exceptions import SchemaError
from skdpgen.synthesizers import MomentSynthesizer, P3GMSynthesizer
from skdpgen.tabular import Categorical, Numeric, Schema
from skdpgen.tabular._constraint_forms import read_constraint
from skdpgen.tabular._construction import within_reach
from skdpgen.testing import seeded_noise

pytestmark = [
    pytest.mark.usefixtures("short_fits"),
    pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning"),
]
_RNG = np.random.default_rng(0)
_ROWS = pd.DataFrame({"a": _RNG.normal(size=400), "n": _RNG.integers(0, 9, 400), "b": _RNG.choice(["x", "y"], 400)})
_DECLARED = Schema([Numeric("a", (-5, 5)), Numeric("n", (0, 8), integer=True), Categorical("b", ("x", "y"))])


@pytest.mark.parametrize("schema", [None, _DECLARED], ids=["learned", "declared"])
@pytest.mark.parametrize("condition", ["a > 0", "b == 'x'", "a > 0 or b == 'x'", "n in [1, 2]", "a < n"])
def test_rows_that_violate_a_condition_are_refused_before_the_charge(condition, schema):
    accountant = PrivacyAccountant(1.0)
    synthesizer = MomentSynthesizer(1.0, accountant=accountant, schema=schema, constraints=[condition])
    with pytest.raises(SchemaError, match="rows violate the constraint") as error:
        synthesizer.set_params(on_invalid="raise").fit(_ROWS)
    assert condition in str(error.value)
    assert not len(accountant.report())
    assert len(synthesizer.set_params(on_invalid="clip").fit(_ROWS).sample(20)) == 20


def test_rows_that_satisfy_the_conditions_and_missing_values_are_accepted():
    rows = _ROWS[_ROWS["a"] > 0].assign(m=np.where(np.arange((_ROWS["a"] > 0).sum()) % 2, 3.0, np.nan))
    fitted = MomentSynthesizer(1.0, constraints=["a > 0", "m >= 3", "b in ['x', 'y']"], on_invalid="raise").fit(rows)
    assert (fitted.sample(50)["a"] > 0).all()


def test_a_condition_on_a_category_that_was_not_released_says_so_at_sampling():
    fitted = MomentSynthesizer(9.0, constraints=["b == 'X'"]).fit(_ROWS)
    with pytest.raises(ValueError, match=r"names 'X', which is no category of 'b', by what was released .*relax"):
        fitted.sample(5)
    assert len(fitted.relax("b == 'X'").sample(5)) == 5
    fitted = MomentSynthesizer(9.0, schema=_DECLARED, constraints=["a > 0 or b == 'x'"]).fit(_ROWS)
    with pytest.raises(ValueError, match="almost no probability"):  # nothing of the schema rules this out
        fitted.set_params(constraints=["a > 4.99999"]).sample(50)


def test_chunks_of_rows_are_refused_too(tmp_path):
    with pytest.raises(SchemaError, match="rows violate the constraint"):
        MomentSynthesizer(1.0, schema=_DECLARED, constraints=["a > 0"], on_invalid="raise").fit(
            lambda: iter([_ROWS[:200], _ROWS[200:]])
        )


@pytest.mark.parametrize("model", [MomentSynthesizer, P3GMSynthesizer])
@pytest.mark.parametrize("condition", ["age >= 16", "16 <= age", "age == 40", "-age <= -16"])
def test_a_fit_that_learns_no_bounds_satisfies_its_conditions(condition, model):
    rows = pd.DataFrame({"age": np.full(30, 40), "q": _RNG.choice(["x", "y"], 30)})
    with seeded_noise(6, quiet=True):  # of the values 40 and 41 this noise leaves the first
        fitted = model(0.01, random_state=0, constraints=[condition]).fit(rows)
    if condition.startswith("-"):  # not of this form: rows are drawn again
        return
    drawn = fitted.sample(50, random_state=0)["age"].dropna()
    assert len(drawn)
    assert pd.DataFrame({"age": drawn}).eval(condition).all()


def _moved(bounds, *conditions, learned=("a",), **facts):
    schema = Schema([Numeric("a", bounds, **facts)])
    moved = within_reach(schema, [read_constraint(text, ["a"]) for text in conditions], learned)
    return moved["a"].bounds


def test_bounds_move_where_no_number_satisfies_the_conditions():
    assert _moved((0, 1), "a > 5") == (5, 6)
    assert _moved((0, 4), "a > 5", integer=True) == (6, 10)
    assert _moved((0, 4), "a < -5", integer=True) == (-10, -6)
    assert _moved((0, 4), "a >= 5", "a <= 7", integer=True) == (5, 7)
    assert _moved((0, 4), "7 >= a >= 5", integer=True) == (5, 7)
    assert _moved((0, 1), "a >= 0.25", step=0.25) == (0, 1)
    assert _moved((0, 1), "a > 5.1", step=0.25) == (5.25, 6.25)
    assert _moved((0, 1), "a <= -3 and a >= -10") == (-4, -3)


@pytest.mark.parametrize(
    "conditions", [["a > 0.5"], ["a >= 1 or a < 9"], ["a != 5"], ["a > 5", "a < 4"], ["not a > 5"], ["a > a + 5"]]
)
def test_bounds_stay_where_a_number_may_satisfy_the_conditions_or_none_does(conditions):
    assert _moved((0, 1), *conditions) == (0, 1)


def test_declared_bounds_stay():
    assert _moved((0, 1), "a > 5", learned=()) == (0, 1)


@pytest.mark.parametrize("kind", ["span", "time"])
def test_a_target_of_time_spans_or_times_is_a_quantity(kind):
    seconds = _RNG.integers(0, 86_000, 400)
    values = pd.to_timedelta(seconds, unit="s")
    values = pd.Series(values) if kind == "span" else pd.Series((pd.Timestamp(0) + values).time, dtype=object)
    fitted = MomentSynthesizer(3.0, target="t").fit(_ROWS.assign(t=values))
    assert isinstance(fitted.schema_["t"], Numeric)
    assert isinstance(fitted.sample(5)["t"].dropna().iloc[0], type(values.iloc[0]))
