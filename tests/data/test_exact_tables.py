"""Tables of more rows than can be counted exactly are refused before the charge, by public facts alone."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from _short_fits import short_postprocessing

from skdpgen import MomentSynthesizer, PrivacyAccountant, PrivacyUnit
from skdpgen.data import frames
from skdpgen.data.table_plan import largest_entries, room_for_tables
from skdpgen.exceptions import InvalidInputError
from skdpgen.mechanisms import _one_hot
from skdpgen.tabular import Boolean, Categorical, Numeric, Schema
from skdpgen.testing import seeded_noise

pytestmark = [
    pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning"),
    pytest.mark.usefixtures("short_fits"),
]
WORDS = [f"w{i}" for i in range(101)]
SCHEMAS = {
    "declared": Schema([Numeric("x", (0, 1)), Categorical("word", WORDS), Categorical("y", list("abcdefghij"))]),
    "missing": Schema(
        [Numeric("x", (0, 1), missing=True), Boolean("flag"), Categorical("y", list("abc"), missing=True)]
    ),
    "many categories": Schema([Numeric("x", (0, 1)), Categorical("word", [f"w{i}" for i in range(500)])]),
    "learned": Schema([Numeric("x"), Categorical("word"), Categorical("y")]),
}


def table(schema, n=3000):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.random(n), "word": rng.choice(WORDS, n), "flag": rng.random(n) < 0.4})
    frame["y"] = rng.choice(list("abc"), n)
    return frame[list(schema.names)]


def more_rows_than_tables_count_exactly_are_refused_before_the_charge(weighting):
    schema = SCHEMAS["declared"]
    rows = table(schema).assign(person=np.arange(3000) // 2, y=np.resize(list("abcdefghij"), 3000))
    lattice = 2**-20 if weighting == "units" else 2**-10
    unit = PrivacyUnit("person", max_rows=2, weighting=weighting)
    accountant = PrivacyAccountant(500.0, 1e-5, unit="person")
    how = {"target": "y", "schema": schema, "unit": unit}
    model = MomentSynthesizer(epsilon=400.0, accountant=accountant, **how)
    with pytest.MonkeyPatch.context() as patch, short_postprocessing():
        # contrasts of 101 levels have a 51, those of 10 classes a 3
        patch.setattr(_one_hot, "_MOST_STEPS", int(2999 / lattice) * 51**2 * 3)
        with pytest.raises(InvalidInputError, match="at most 2,999 rows can be counted exactly"):
            model.fit(rows)
        assert not accountant.entries
        assert model.fit(rows[:2998]).sample(5).shape[0] == 5


test_more_rows_than_tables_count_exactly_are_refused_before_the_charge = pytest.mark.parametrize(
    "weighting", ["rows", "units"]
)(more_rows_than_tables_count_exactly_are_refused_before_the_charge)


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("epsilon", [0.5, 200.0])
def test_no_plan_of_tables_has_larger_contrasts_than_were_expected(monkeypatch, name, epsilon):
    schema = SCHEMAS[name]
    target, plans = "y" if "y" in schema.names else None, []

    def watched(codes, plan, *args, **options):
        plans.append(plan)
        return _one_hot.one_hot_moments(codes, plan, *args, **options)

    monkeypatch.setattr(frames, "one_hot_moments", watched)
    with seeded_noise(quiet=True):
        MomentSynthesizer(epsilon=epsilon, delta=1e-5, target=target, schema=schema).fit(table(schema))
    targets = () if target is None else (target,)
    entries, of_classes = largest_entries(schema, targets, *room_for_tables(schema, targets))
    for plan in plans:
        assert plan.contrasts.largest <= max(entries.values())
        assert plan.classes.largest <= of_classes
