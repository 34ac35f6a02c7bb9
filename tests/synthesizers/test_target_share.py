"""Fits whose budget has a share for the target: what they release and charge, and the rows that they draw."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from _claims import assert_refused_before_the_charge

import skdpgen
from skdpgen import DPSGD, MomentSynthesizer, P3GMSynthesizer, PrivacyAccountant
from skdpgen.exceptions import UtilityWarning
from skdpgen.synthesizers import _frame_model
from skdpgen.tabular import Categorical, Datetime, Numeric, Schema
from skdpgen.utils.watching import watch_releases

SHARE = {"target": 0.2}
SCHEMA = Schema(
    [
        Numeric("age", (18, 90), integer=True),
        Numeric("amount", (0, 1000), missing=True),
        Categorical("job", ("baker", "nurse", "pilot")),
        Datetime("day", ("2020-01-01", "2020-12-31")),
        Categorical("state", ("good", "poor", "bad")),
    ]
)


def _frame(n, seed=0):
    """The target depends on a number within a narrow interval, which bins of tables do not show, and on the job."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 91, n),
            "amount": np.where(rng.random(n) < 0.1, np.nan, rng.gamma(2.0, 90.0, n).clip(max=1000)),
            "job": rng.choice(["baker", "nurse", "pilot"], n),
            "day": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 366, n), unit="D"),
        }
    )
    narrow = frame["amount"].between(200, 215)
    logits = np.stack([1.0 + 0 * narrow, 2.5 * narrow, 1.5 * (frame["job"] == "pilot")], axis=1)
    picked = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    return frame.assign(state=np.array(["good", "poor", "bad"], dtype=object)[picked])


@pytest.fixture(scope="module")
def fitted():
    return MomentSynthesizer(3.0, schema=SCHEMA, target="state", random_state=0, budget_split=SHARE).fit(_frame(20_000))


def _share_of(rows, value, where):
    return float((rows.loc[where, "state"] == value).mean())


def _narrow(rows):
    return rows["amount"].between(200, 215)


@pytest.mark.parametrize("make", [MomentSynthesizer, P3GMSynthesizer])
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.usefixtures("short_fits")
def test_one_more_event_at_the_same_budget(make, chunked):
    frame, seen = _frame(3000), []
    accountant = PrivacyAccountant(1.0)
    synth = make(1.0, schema=SCHEMA, target="state", random_state=0, accountant=accountant, budget_split=SHARE)
    rows = [frame.iloc[:1000], frame.iloc[1000:]] if chunked and make is MomentSynthesizer else frame
    plan = synth.plan(rows)
    with watch_releases(lambda released, sd, kind: seen.append((np.size(released), sd))):
        synth.fit(rows)
    assert plan.phases[-1].label == "target"
    assert accountant.epsilon_spent() == pytest.approx(1.0, rel=1e-3)
    assert len(accountant.charges) == 1
    assert accountant.charges[0].label.endswith("target")
    step = synth.model_.target_model
    assert seen[-1][0] % len(step.classes) == 0
    # the noise of the last release, relative to the sensitivity of a row, which is 1
    assert np.unique(seen[-1][1]) == pytest.approx(plan.noise_multipliers["target"])
    plain = make(1.0, schema=SCHEMA, target="state", budget_split={"target": 0}).plan(frame)
    assert "target" not in plain.noise_multipliers
    assert plain.noise_multipliers["moments"] < plan.noise_multipliers["moments"]


def test_rows_show_what_bins_of_tables_do_not(fitted):
    real = _frame(100_000, seed=9)
    rows = fitted.sample(100_000, random_state=0)
    plain = MomentSynthesizer(3.0, schema=SCHEMA, target="state", random_state=0, budget_split={"target": 0})
    plain.fit(_frame(20_000))
    assert plain.model_.target_model is None
    without = plain.sample(100_000, random_state=0)
    found, missed, true = (_share_of(r, "poor", _narrow(r)) for r in (rows, without, real))
    assert abs(found - true) < 0.5 * abs(missed - true)
    for value in ("good", "poor", "bad"):
        assert (rows["state"] == value).mean() == pytest.approx((real["state"] == value).mean(), abs=0.02)
    assert rows.dtypes.equals(without.dtypes)
    assert SCHEMA.names == tuple(rows.columns)


def test_rows_of_given_classes_follow_the_model_of_the_target(fitted):
    wanted = ["poor", "bad", "poor", "good"] * 2500
    rows = fitted.sample(y=wanted, random_state=0)
    assert rows["state"].tolist() == wanted
    balanced = fitted.sample(9000, class_ratio="balanced", random_state=0)
    assert balanced["state"].value_counts().tolist() == [3000] * 3
    free = fitted.sample(40_000, random_state=1)
    for mine in (rows, balanced):
        one, other = (_narrow(r[r["state"] == "poor"]).mean() for r in (mine, free))
        assert one == pytest.approx(other, abs=0.02)


def test_given_values_change_the_shares_of_the_classes(fitted):
    free = fitted.sample(200_000, random_state=1)
    rows = fitted.sample(5000, given={"amount": (200, 215)}, random_state=0)
    assert _narrow(rows).all()
    assert _share_of(rows, "poor", rows.index >= 0) == pytest.approx(_share_of(free, "poor", _narrow(free)), abs=0.06)
    both = fitted.sample(500, given={"amount": (200, 215), "state": ["poor", "bad"], "job": "nurse"}, random_state=0)
    assert set(both["state"]) <= {"poor", "bad"}
    assert (both["state"] == "poor").mean() > 0.5
    assert set(both["job"]) == {"nurse"}
    assert (fitted.sample(50, given={"age": 40}, random_state=0)["age"] == 40).all()
    with pytest.raises(ValueError, match="given excludes"):
        fitted.sample(y=["good"], given={"state": "bad"})


def test_scores_are_the_log_probability_of_the_rows_that_are_drawn(fitted):
    rows = _frame(200, seed=3)
    model = fitted.model_
    apart = [model.score_samples(rows.assign(state=value)) for value in ("good", "poor", "bad")]
    np.testing.assert_allclose(
        np.logaddexp.reduce(apart, axis=0),
        np.logaddexp.reduce([model.latent_model.score_samples(model.codec.codes(rows)[0], k) for k in _classes()], 0),
    )
    assert fitted.score(rows) == pytest.approx(np.mean(model.score_samples(rows)))


def _classes(n=200):
    return [np.full(n, k) for k in range(3)]


def test_latents_come_back_as_rows_whose_target_the_model_draws(fitted):
    rows = fitted.sample(40_000, random_state=0)
    synth = P3GMSynthesizer(3.0, schema=SCHEMA, target="state", random_state=0, budget_split=SHARE).fit(_frame(20_000))
    back = synth.inverse_transform(synth.transform(rows))
    assert list(back.columns) == list(rows.columns)
    assert _share_of(back, "poor", _narrow(back)) > _share_of(back, "poor", ~_narrow(back)) + 0.1


@pytest.mark.parametrize("names", [["a", "b", "self"], [0, 1, 2]])
@pytest.mark.parametrize("as_y", [False, True])
@pytest.mark.usefixtures("short_fits")
def test_columns_may_have_any_names(names, as_y):
    frame = _frame(1000)[["age", "job", "state"]].set_axis(names, axis=1)
    X, y = frame[names[:2]], frame[names[2]]
    data, target = ((X, y), {}) if as_y else ((frame,), {"target": names[2]})
    synth = MomentSynthesizer(5.0, random_state=0, budget_split=SHARE, **target).fit(*data)
    drawn = synth.sample(100, random_state=0)
    assert list((drawn[0] if as_y else drawn).columns) == names[: 2 if as_y else 3]
    assert np.isfinite(synth.score(*data))


@pytest.mark.parametrize("as_y", [False, True])
@pytest.mark.usefixtures("short_fits")
def test_a_saved_model_draws_the_same_rows(tmp_path, as_y):
    frame = _frame(3000)
    data = (frame,) if not as_y else (frame.drop(columns="state"), frame["state"])
    target = {} if as_y else {"target": "state"}
    synth = MomentSynthesizer(8.0, schema=SCHEMA, random_state=0, budget_split=SHARE, **target).fit(*data)
    synth.save(tmp_path / "model.safetensors")
    loaded = skdpgen.load(tmp_path / "model.safetensors")
    assert loaded.budget_split == SHARE
    for options in ({}, {"given": {"job": "nurse"}}):
        mine, theirs = (s.sample(300, random_state=4, **options) for s in (synth, loaded))
        for one, other in zip(*((x if as_y else (x,)) for x in (mine, theirs))):
            assert one.equals(other)
    assert np.isfinite(loaded.score(*data))


def test_nothing_declared_constraints_and_several_targets():
    frame = _frame(5000)
    rules = ["if state == 'bad': amount is None", "age >= 18"]
    synth = P3GMSynthesizer(20.0, target="state", constraints=rules, random_state=0, budget_split=SHARE).fit(frame)
    rows = synth.sample(3000, random_state=0)
    assert rows.loc[rows["state"] == "bad", "amount"].isna().all()
    assert len(rows.loc[rows["state"] == "bad"]) > 100
    several = MomentSynthesizer(20.0, target=["state", "job"], random_state=0, budget_split=SHARE).fit(frame)
    pilots = several.sample(2000, random_state=0)
    share = (pilots.loc[pilots["job"] == "pilot", "state"] == "bad").mean()
    assert share > (pilots.loc[pilots["job"] == "nurse", "state"] == "bad").mean() + 0.1


@pytest.mark.parametrize(("n", "one_class"), [(3000, True), (500, False)])
def test_where_the_noise_hides_the_target_the_share_buys_the_moments_again(n, one_class):
    frame = _frame(n)
    frame = frame.assign(state="good") if one_class else frame
    released = []
    synth = MomentSynthesizer(1.0, schema=SCHEMA, target="state", random_state=0, budget_split=SHARE)
    with warnings.catch_warnings(), watch_releases(lambda value, sd, kind: released.append((np.size(value), sd))):
        warnings.simplefilter("ignore", UtilityWarning)
        synth.fit(frame)
    assert synth.model_.target_model is None
    assert "target" in synth.model_.respent
    labels = [phase.label for phase in synth.plan(frame).phases if phase.label not in synth.model_.respent]
    again = [label for label in ("ranges", "categories", "triples", "target") if label in synth.model_.respent]
    assert len(released) == len(labels) + len(again)
    noise = synth.plan(frame).noise_multipliers
    (size, sd), (size_again, sd_again) = released[labels.index("moments")], released[-1]
    assert size == size_again  # one query, at the noise of either charge
    np.testing.assert_allclose(sd_again / sd, noise["target"] / noise["moments"])
    rows = synth.sample(100, random_state=0)
    assert set(rows["state"]) <= {"good", "poor", "bad"}
    plain = synth.model_.latent_model.sample(np.zeros(5, dtype=int), np.random.default_rng(0))
    assert plain.shape == (5, 4)


def test_a_class_without_a_model_keeps_the_rows_of_the_tables(monkeypatch):
    monkeypatch.setattr(_frame_model, "covered_classes", lambda shares: np.array([0, 1]))
    synth = MomentSynthesizer(5.0, schema=SCHEMA, target="state", random_state=0, budget_split=SHARE)
    synth.fit(_frame(5000))
    rows = synth.sample(4000, random_state=0)
    assert (rows["state"] == "bad").mean() == pytest.approx(synth.class_ratio_[2], abs=1e-3)
    assert (rows.loc[rows["state"] == "bad", "job"] == "pilot").mean() > 0.5
    assert (synth.sample(y=["bad"] * 20, random_state=0)["state"] == "bad").all()
    assert np.isfinite(synth.score(_frame(100)))


def test_a_class_that_is_hardly_ever_drawn_is_an_error(fitted, monkeypatch):
    never = np.array([1.0, 1e-9, 1e-9])
    kind = type(fitted.model_.target_model)
    monkeypatch.setattr(kind, "logits", lambda self, codes: np.tile(np.log(never), (len(codes), 1)))
    assert (fitted.sample(y=["good"] * 5, random_state=0)["state"] == "good").all()
    with pytest.raises(ValueError, match="almost no row of class 'bad'"):
        fitted.sample(y=["bad"], random_state=0)


def test_rows_that_are_too_rare_for_all_draws_end_within_seconds(fitted, monkeypatch):
    # a class of one row in 100,000: twenty of them need more rows than are drawn at most
    kind, drawn = type(fitted.model_.target_model), []
    never = np.array([1.0, 1e-5, 1e-9])

    def logits(self, codes):
        drawn.append(len(codes))
        return np.tile(np.log(never), (len(codes), 1))

    monkeypatch.setattr(kind, "logits", logits)
    with pytest.raises(
        ValueError, match=r"20 of the rows that were asked for.* need more than 500,000\. Ask for fewer"
    ):
        fitted.sample(y=["poor"] * 20, random_state=0)
    assert sum(drawn) <= 500_000


def test_many_rows_of_a_rare_class_may_need_many_more_rows(fitted, monkeypatch):
    monkeypatch.setattr("skdpgen.generators.conditioning._ALL_ROWS", 0)
    rows = fitted.sample(2000, class_ratio={"good": 0, "poor": 1, "bad": 0}, random_state=0)
    assert (rows["state"] == "poor").all()


def test_a_tenth_of_the_budget_is_the_default_where_there_can_be_such_a_model():
    frame = _frame(300)
    X, y = np.random.default_rng(0).random((100, 3)), np.arange(100) % 2
    several = [MomentSynthesizer(target=["job", "state"]), MomentSynthesizer(), P3GMSynthesizer(target="state")]
    for synth, data in zip(several, [(frame,), (frame.drop(columns="state"), frame["state"]), (frame,)]):
        phases = {phase.label: phase.share for phase in synth.plan(*data).phases}
        assert phases["target"] == 0.1
        synth.set_params(budget_split={"bounds": 0.02})
        assert synth.plan(*data).phases[-1].label == "target"
        with_none = synth.set_params(budget_split={"target": 0}).plan(*data).phases
        assert "target" not in [phase.label for phase in with_none]
        assert sum(phase.share for phase in with_none) == pytest.approx(1)
    for synth, data in (
        (MomentSynthesizer(bounds=(0, 1)), (X, y)),
        (MomentSynthesizer(), (frame,)),
        (MomentSynthesizer(target="age", target_type="numeric"), (frame,)),
        (P3GMSynthesizer(target="state", decoder="net", training=DPSGD(steps=2)), (frame,)),
        (MomentSynthesizer(target="state", unit="age", max_rows_per_unit=1), (frame,)),
    ):
        plans = [synth.set_params(budget_split=split).plan(*data) for split in (None, {"target": 0})]
        for plan in plans:
            assert "target" not in [phase.label for phase in plan.phases]
        assert plans[0].noise_multipliers == plans[1].noise_multipliers


@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
@pytest.mark.parametrize(
    ("make", "dtype"), [(P3GMSynthesizer, object), *((MomentSynthesizer, kind) for kind in (object, "category"))]
)
def test_the_classes_that_the_model_of_the_target_draws_have_the_dtype_of_the_target(make, dtype):
    frame = _frame(3_000).astype({"state": dtype})
    frame.loc[frame.index[::7], "state"] = None
    model = make(3.0, target="state").fit(frame)
    rows = model.sample()
    assert rows["state"].isna().any()
    for drawn in (rows, model.sample(50, given={"job": "nurse"})):
        assert drawn["state"].dtype.name == frame["state"].dtype.name


def test_shares_that_no_model_has_are_refused_before_the_charge():
    frame = _frame(300)
    X = np.random.default_rng(0).random((100, 3))
    for synth, data, match in (
        (MomentSynthesizer(bounds=(0, 1)), (X, np.arange(100) % 2), "a DataFrame with a categorical target"),
        (MomentSynthesizer(), (frame,), "a DataFrame with a categorical target"),
        (MomentSynthesizer(target="age", target_type="numeric"), (frame,), "a DataFrame with a categorical target"),
        (P3GMSynthesizer(target="state", decoder="net", training=DPSGD(steps=2)), (frame,), 'decoder="released"'),
        (P3GMSynthesizer(prior="mixture"), (frame.drop(columns="state"), frame["state"]), "categorical target"),
        (MomentSynthesizer(target="state", unit="age", max_rows_per_unit=1), (frame,), "rows as the unit"),
    ):
        assert_refused_before_the_charge(synth.set_params(budget_split=SHARE), match, *data)
    for share in (1e-9, 1.0, -0.1, np.nan, "half"):
        synth = MomentSynthesizer(target="state", budget_split={"target": share})
        assert_refused_before_the_charge(synth, "budget_split", frame)
    synth = MomentSynthesizer(target="state", schema=SCHEMA, budget_split={"target": 0.97})
    assert_refused_before_the_charge(synth, "leaves nothing", frame)
