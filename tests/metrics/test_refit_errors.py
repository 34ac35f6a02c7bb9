"""Standard errors by refits to synthetic rows: they contain noise and sampling, and cost nothing."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import pytest

from skdpgen import MomentSynthesizer, P3GMSynthesizer, PrivacyAccountant, PrivacyUnit, Schema, load
from skdpgen.exceptions import UtilityWarning
from skdpgen.metrics import _refits, leak_note, refit_errors
from skdpgen.tabular import Boolean, Categorical, Numeric

pytestmark = pytest.mark.usefixtures("short_fits")

_SCHEMA = Schema([Numeric("age", (0, 100)), Boolean("ill")])


def _frame(n_rows=1500, seed=0):
    rng = np.random.default_rng(seed)
    age = rng.uniform(20, 60, n_rows)
    return pd.DataFrame({"age": age, "ill": rng.random(n_rows) < age / 100})


def _statistic(rows):
    return {"age": rows["age"].mean(), "ill": rows["ill"].astype(float).mean()}


@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")  # at epsilon .08
def test_the_standard_error_of_a_share_contains_sampling_and_noise():
    """Of one column, whose model has the released share itself: a fit to tables would take half a minute."""
    n_rows = 1500
    frame, schema = _frame(n_rows)[["ill"]], Schema([Boolean("ill")])
    errors = {}
    for epsilon in (0.08, 50.0):
        synth = MomentSynthesizer(epsilon, schema=schema).fit(frame)
        errors[epsilon] = refit_errors(synth, lambda rows: rows["ill"].mean(), n_fits=20)["standard_error"].iloc[0]
    of_sampling = (0.4 * 0.6 / n_rows) ** 0.5
    # of 20 fits, a standard deviation is within .6 and 1.5 of its expectation with probability .999
    assert 0.55 * of_sampling < errors[50.0] < 1.6 * of_sampling
    assert errors[0.08] > 1.3 * of_sampling  # 1.9 expected


@pytest.mark.full_fits
def test_an_interval_has_the_value_of_the_population():
    synth = MomentSynthesizer(1.0, schema=_SCHEMA).fit(_frame(3000))
    found = refit_errors(synth, _statistic, n_fits=6, confidence=0.9999)
    assert (found["low"] < [40.0, 0.4]).all()
    assert (found["high"] > [40.0, 0.4]).all()
    assert list(found.columns) == ["estimate", "bias", "standard_error", "low", "high"]


def test_refits_charge_nothing_and_have_the_noise_of_the_fit():
    budget = PrivacyAccountant(epsilon=3.0)
    MomentSynthesizer(1.0, schema=_SCHEMA, accountant=budget).fit(_frame())
    synth = MomentSynthesizer(epsilon=None, schema=_SCHEMA, accountant=budget).fit(_frame())
    spent, seen = budget.epsilon_spent(), []
    wanted = [charge.releases for charge in synth.card_.charges[-1:]]

    class Watched(MomentSynthesizer):
        def fit(self, X, y=None):
            super().fit(X, y)
            seen.append([row.noise_multiplier for row in self.card_.charges[-1].releases])
            return self

    synth.__class__ = Watched
    refit_errors(synth, _statistic, n_fits=2)
    assert budget.epsilon_spent() == spent
    assert len(budget.charges) == 2
    assert len(seen) == 2
    for noise in seen:
        np.testing.assert_allclose(noise, [row.noise_multiplier for row in wanted[0]], rtol=2e-3)


def test_a_loaded_model_and_arrays_with_labels_are_refitted(tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 800)
    X = rng.random((800, 3)) * 0.5 + 0.4 * y[:, None]
    synth = P3GMSynthesizer(5.0, bounds=(0, 1), classes=[0, 1]).fit(X, y)
    synth.save(tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors")
    found = refit_errors(again, lambda X, y: X[y == 1].mean(axis=0) - X[y == 0].mean(axis=0), n_fits=3, random_state=0)
    assert found.index.tolist() == [0, 1, 2]
    assert (abs(found["estimate"] - 0.4) < 0.1).all()
    assert (found["standard_error"] > 0).all()


def test_units_are_drawn_whole():
    rng = np.random.default_rng(0)
    person = np.repeat(np.arange(900), rng.integers(1, 4, 900))
    frame = pd.DataFrame({"person": person, "sex": rng.choice(["f", "m"], 900)[person], "x": rng.random(len(person))})
    schema = Schema([Categorical("sex", ("f", "m")), Numeric("x", (0, 1))])
    synth = MomentSynthesizer(4.0, schema=schema, unit=PrivacyUnit("person", 3, columns=["sex"])).fit(frame)
    seen = []

    def statistic(rows):
        seen.append(rows.groupby("person")["sex"].nunique().max())
        return rows.groupby("person").size().mean()

    found = refit_errors(synth, statistic, n_fits=3)
    assert set(seen) == {1}
    assert found.loc[0, "estimate"] == pytest.approx(2.0, abs=0.3)
    assert 0 < found.loc[0, "standard_error"] < 0.3


def test_what_has_no_standard_error_is_refused():
    synth = MomentSynthesizer(4.0, schema=_SCHEMA).fit(_frame())
    for n_fits in (1, 2.5, True):
        with pytest.raises(ValueError, match="n_fits must be at least 2, a whole number"):
            refit_errors(synth, _statistic, n_fits=n_fits)
    with pytest.raises(ValueError, match="confidence must be between 0 and 1"):
        refit_errors(synth, _statistic, confidence=95)
    rows = np.random.default_rng(0).random((600, 2))
    grouped = MomentSynthesizer(4.0, bounds=(0, 1), unit=PrivacyUnit(max_rows=2)).fit(rows, groups=np.arange(600) // 2)
    with pytest.raises(ValueError, match="fitted with groups="):
        refit_errors(grouped, lambda X: X.mean())


def _refits_of(monkeypatch):
    """Fitted clones of the calls of `refit_errors` that follow, and the tables that they were fitted to."""
    seen, fitted = [], _refits._refitted

    def watched(synthesizer, rows):
        seen.append((fitted(synthesizer, rows), rows))
        return seen[-1][0]

    monkeypatch.setattr(_refits, "_refitted", watched)
    return seen


def test_refits_have_the_relation_of_the_accountant(monkeypatch):
    budget = PrivacyAccountant(epsilon=3.0, neighboring="replace_one")
    synth = MomentSynthesizer(1.0, schema=_SCHEMA, accountant=budget).fit(_frame())
    seen = _refits_of(monkeypatch)
    refit_errors(synth, _statistic, n_fits=2)
    assert [fitted.card_["neighboring"] for fitted, _ in seen] == ["replace_one"] * 2


def test_a_statistic_may_change_its_sample(monkeypatch):
    synth = MomentSynthesizer(4.0, schema=_SCHEMA).fit(_frame())
    seen = _refits_of(monkeypatch)

    def statistic(rows):
        rows["age"] -= 40
        rows["old"] = rows["age"] > 0
        return rows["old"].mean()

    refit_errors(synth, statistic, n_fits=2)
    for _, (rows,) in seen:
        assert list(rows.columns) == ["age", "ill"]
        assert rows["age"].min() >= 0


@pytest.mark.parametrize("epsilon", [np.inf, None])
def test_a_fit_without_noise_has_sampling_error_alone(epsilon, monkeypatch):
    synth = MomentSynthesizer(epsilon, schema=_SCHEMA, accountant=PrivacyAccountant(epsilon=np.inf)).fit(_frame())
    seen = _refits_of(monkeypatch)
    found = refit_errors(synth, _statistic, n_fits=3)
    assert (found["standard_error"] > 0).all()
    assert not any(fitted.card_["private"] for fitted, _ in seen)


def test_a_statistic_without_a_number_in_a_refit_has_no_standard_error():
    synth, calls = MomentSynthesizer(4.0, schema=_SCHEMA).fit(_frame()), []

    def statistic(rows):
        calls.append(None)
        return _statistic(rows) | ({} if len(calls) == 3 else {"at times": rows["age"].std()})

    with pytest.warns(UtilityWarning, match=r"'at times' has no number in 1 of 3 refits.*return 0"):
        found = refit_errors(synth, statistic, n_fits=3)
    assert found.loc["at times", ["bias", "standard_error", "low", "high"]].isna().all()
    assert found.loc[["age", "ill"]].notna().all(axis=None)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have no notes")
def test_an_error_of_a_refit_says_that_no_budget_of_the_caller_was_charged(monkeypatch):
    synth = MomentSynthesizer(4.0, schema=_SCHEMA).fit(_frame())

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(MomentSynthesizer, "_complete", stop)
    with pytest.raises(KeyboardInterrupt) as error:
        refit_errors(synth, _statistic, n_fits=2)
    assert error.value.__notes__[-1].endswith("a refit to synthetic rows, which charges no budget of yours")


def test_it_reveals_no_more_than_the_model():
    assert leak_note(refit_errors).startswith("Nothing beyond the released model")
