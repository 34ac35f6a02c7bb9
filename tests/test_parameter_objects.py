"""Parameter objects of constructors, and the split of the budget: validated before the charge, tuned, written, read."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from _nasty import LISTS, NASTY, OBJECTS, outcome
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import skdpgen
from skdpgen import (
    DPPCA,
    DP2VAESynthesizer,
    DPGMSynthesizer,
    ImageFeatures,
    LatentMixture,
    MomentSynthesizer,
    P3GMSynthesizer,
    PrivacyAccountant,
    PrivacyUnit,
    PrivateSearchCV,
)
from skdpgen._types import BoundedUnit
from skdpgen.dpsgd import DPSGDPlan
from skdpgen.nn import DPNet, P3GMModule
from skdpgen.synthesizers._budget import paper_settings, resolve_parameters

pytestmark = pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")

X = np.random.default_rng(0).random((60, 2))
IDS = np.arange(60) // 2
UNIT = PrivacyUnit("person", 2, weighting="units", missing="own")


# ---- as scikit-learn has them ---------------------------------------------------------------------------------------
def test_the_objects_are_cloned_shown_and_set_as_nested_estimators():
    made = MomentSynthesizer(unit=UNIT)
    copy = clone(made)
    assert copy.unit is not UNIT
    assert repr(copy.unit) == "PrivacyUnit(max_rows=2, missing='own', name='person', weighting='units')"
    copy.set_params(unit__weighting="rows", unit__max_rows=5)
    assert (copy.unit.weighting, copy.unit.max_rows, UNIT.weighting) == ("rows", 5, "units")
    assert P3GMSynthesizer(prior=LatentMixture()).get_params()["prior__n_iter"] == 8


@pytest.mark.parametrize(
    ("synth", "name", "named"),
    [
        (P3GMSynthesizer(), "decoder__n_steps", "decoder=ImageFeatures()"),
        (P3GMSynthesizer(), "prior__n_iter", "prior=LatentMixture()"),
        (DPPCA(unit="pid"), "unit__weighting", "unit=PrivacyUnit()"),
    ],
)
def test_a_parameter_of_an_object_that_is_not_there_names_the_object(synth, name, named):
    with pytest.raises(ValueError, match=re.escape(named)):
        synth.set_params(**{name: 3})


def test_an_object_and_its_parameters_are_set_together():
    assert P3GMSynthesizer().set_params(decoder__n_steps=3, decoder=ImageFeatures()).decoder.n_steps == 3
    assert P3GMSynthesizer().set_params(decoder="released", unit=None, prior="mixture").prior == "mixture"
    assert P3GMSynthesizer(net=DPNet(P3GMModule)).set_params(net__lr=0.5).net.lr == 0.5


@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.PrivacyLeakWarning")
def test_a_grid_names_what_is_inside():
    search = GridSearchCV(
        P3GMSynthesizer(50.0, bounds=(0, 1), prior=LatentMixture(2), random_state=0), {"prior__n_iter": [1, 2]}, cv=2
    ).fit(X)
    assert search.best_estimator_.prior.n_iter in (1, 2)


def test_a_private_search_takes_shares_and_refuses_another_unit():
    grid = {"budget_split": [{"bounds": 0.05}, {"bounds": 0.2}]}
    plan = PrivateSearchCV(DPPCA(1), grid, runs="logarithmic", mean_runs=1.5, score_bounds=(-30, 10)).plan(X)
    assert plan.epsilon == pytest.approx(1.0, rel=1e-2)
    with pytest.raises(ValueError, match="all candidates protect one unit"):
        PrivateSearchCV(MomentSynthesizer(unit=UNIT), {"unit__max_rows": [1, 2]}, score_bounds=(-9, 9)).plan(
            X, groups=IDS
        )


# ---- the short form, and the object ---------------------------------------------------------------------------------
def test_a_name_and_a_number_are_short_for_a_unit():
    plans = [
        MomentSynthesizer(1.0, bounds=(0, 1), **how).plan(X, groups=IDS)
        for how in (
            {"unit": "person", "max_rows_per_unit": 2},
            {"unit": PrivacyUnit("person", 2)},
            {"unit": PrivacyUnit("person"), "max_rows_per_unit": 2},
        )
    ]
    assert {plan.unit for plan in plans} == {BoundedUnit("person", 2)}
    assert len({tuple(plan.noise_multipliers.values()) for plan in plans}) == 1
    assert MomentSynthesizer(1.0, unit=PrivacyUnit(None, 2)).plan(X, groups=IDS).unit == BoundedUnit("unit", 2)


def test_the_name_of_a_mixture_is_short_for_the_default_one():
    plans = [P3GMSynthesizer(prior=prior, bounds=(0, 1)).plan(X) for prior in ("mixture", LatentMixture())]
    assert plans[0].noise_multipliers == plans[1].noise_multipliers
    longer = P3GMSynthesizer(prior=LatentMixture(n_iter=32), bounds=(0, 1)).plan(X)
    assert longer.noise_multipliers["mixture"] == pytest.approx(2 * plans[0].noise_multipliers["mixture"], rel=1e-3)


def test_a_plan_of_steps_takes_the_unit_and_nothing_that_it_would_ignore():
    plan = DPSGDPlan(0.5, 3, 1.0, 2.0, 10.0, unit=PrivacyUnit("person", 2, weighting="units"))
    assert plan.unit == BoundedUnit("person", 2, "units")
    with pytest.raises(ValueError, match="missing="):
        DPSGDPlan(0.5, 3, 1.0, 2.0, 10.0, unit=UNIT)


def test_shares_beside_a_preset_are_those_of_both():
    def resolved(**parameters):
        made = P3GMSynthesizer(preset="paper/adult", **parameters)
        return resolve_parameters(made.get_params(deep=False), made._defaults(), presets=paper_settings)

    papers = paper_settings("paper/adult")["budget_split"]
    assert resolved()["budget_split"] == papers
    assert resolved(budget_split={"bounds": 0.2})["budget_split"] == {"bounds": 0.2, **papers}
    with pytest.raises(ValueError, match="sets budget_split"):
        resolved(budget_split={"encoder": 1.0})


# ---- files ----------------------------------------------------------------------------------------------------------
def test_a_card_and_a_file_hold_the_objects(tmp_path):
    synth = MomentSynthesizer(5.0, bounds=(0, 1), unit=UNIT, budget_split={"bounds": np.float32(0.25)}).fit(
        X, groups=IDS
    )
    held = synth.card_["model"]["parameters"]
    assert held["unit"] == {
        "name": "person", "max_rows": 2, "weighting": "units", "missing": "own", "columns": None,
        "shared": None,
    }  # fmt: skip
    assert held["budget_split"] == {"bounds": 0.25}
    synth.save(tmp_path / "m.safetensors")
    again = skdpgen.load(tmp_path / "m.safetensors")
    assert repr(again.unit) == repr(UNIT)
    made = P3GMSynthesizer(5.0, bounds=(0, 1), prior=LatentMixture(2, n_iter=1)).fit(X)
    assert "prior: an object" not in " ".join(made.card_["public_assumptions"])
    made.save(tmp_path / "p.safetensors")
    assert repr(skdpgen.load(tmp_path / "p.safetensors").prior) == repr(made.prior)


# ---- refusals cost nothing -------------------------------------------------------------------------------------------
MOVED = {
    "unit_weighting": "weighting=", "missing_unit": "missing=", "unit_columns": "columns=", "bounds_share": '"bounds"',
    "n_mixture": "n_components=", "covariance_type": "covariance_type=", "em_steps": "n_iter=",
}  # fmt: skip


@pytest.mark.parametrize("name", MOVED)
def test_a_name_of_before_is_refused_with_the_one_of_today(name):
    for refused in (lambda: P3GMSynthesizer(**{name: 1}), lambda: P3GMSynthesizer().set_params(**{name: 1})):
        with pytest.raises(TypeError, match=f"{name}.*{re.escape(MOVED[name])}"):
            refused()
    assert skdpgen.DPGaussianMixture(covariance_type="diag").covariance_type == "diag"


def _of_units():
    return MomentSynthesizer(bounds=(0, 1), l2_bound=2.0, unit=PrivacyUnit("person", 2))


def _of_mixture():
    return P3GMSynthesizer(bounds=(0, 1), l2_bound=2.0, prior=LatentMixture(2, n_iter=1))


@pytest.mark.parametrize(
    ("make", "data", "name"),
    [
        *[(_of_units, (X, None, IDS), f"unit__{name}") for name in PrivacyUnit().get_params()],
        *[(_of_mixture, (X,), f"prior__{name}") for name in LatentMixture().get_params()],
    ],
)
def test_odd_values_inside_are_refused_by_name_before_the_charge(make, data, name):
    inner = name.partition("__")[2]
    for value in [*NASTY, *LISTS, *OBJECTS]:
        made = make().set_params(**{name: value})
        try:
            found = outcome(lambda made=made: made, data, name, value, stop=True, named=False)
        except AssertionError as error:
            raise AssertionError(f"{name}={value!r}") from error
        assert found in ("refused", "charged")
        if found == "refused":
            with pytest.raises(Exception, match=f"{inner}|unit|identifiers"):
                made.plan(*data)


SPLITS = [
    {"bounds": 0}, {"bounds": 1}, {"bounds": np.nan}, {"bounds": "1"}, {"bounds": True}, {"bounds": 10**400},
    {"bounds": None}, {"bounds": [0.1]}, {"encoder": -1}, {"encoder": np.inf, "decoder": 1}, {"encoder": "a"},
    {"encoder": [1, 2]}, {"encoder": 10**400}, {"other": 1}, {1: 1}, {("bounds",): 0.1}, {"encoder": None},
    {"\ud800": 0.1}, {"encoder": 0}, {"bounds": 0.1j}, (1, 0, 0), [1], 0.1, "bounds",
]  # fmt: skip


@pytest.mark.parametrize("estimator", [P3GMSynthesizer, DP2VAESynthesizer, DPGMSynthesizer, DPPCA], ids=str)
def test_a_split_that_is_none_is_refused_by_name_before_the_charge(estimator):
    for split in SPLITS:
        books = PrivacyAccountant(10.0)
        with pytest.raises(ValueError, match="budget_split"):
            estimator(budget_split=split, accountant=books).fit(X)
        assert not books.entries


def test_columns_are_refused_where_units_are_not_sampled():
    with pytest.raises(ValueError, match="columns= of PrivacyUnit is not for DPPCA"):
        DPPCA(1, unit=PrivacyUnit("person", 2, columns="a")).fit(X, groups=IDS)


def test_a_share_moves_the_noise_as_it_says():
    one, other = (DPPCA(1, budget_split={"bounds": share}).plan(X) for share in (0.05, 0.2))
    ratio = one.noise_multipliers["bounds"] / other.noise_multipliers["bounds"]
    assert ratio == pytest.approx(2.0, rel=1e-3)
    assert DPPCA(1).plan(X).noise_multipliers == one.noise_multipliers


def test_the_command_line_sets_what_is_inside(capsys):
    from skdpgen.__main__ import main

    command = ["budget", "--columns", "2", "--rows", "1000", "--set", "bounds=(0, 1)", "--json"]
    assert main([*command, "--set", "prior__n_iter=2", "--set", "prior__n_components=2"]) == 0
    assert json.loads(capsys.readouterr().out)["phases"][-1]["steps"] == 2
    for wrong in (["prior__steps=2"], ["prior=mixture", "prior__n_iter=2"]):
        assert main([*command, *(part for text in wrong for part in ("--set", text))]) == 2
        assert "prior" in capsys.readouterr().err
