"""Parameter objects of constructors, and the split of the budget: validated before the charge, tuned, written, read."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from _flat import make_flat
from _nasty import LISTS, NASTY, OBJECTS, outcome
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import skdpgen
from skdpgen import (
    DPPCA,
    DPSGD,
    DP2VAESynthesizer,
    DPCGANSynthesizer,
    DPGMSynthesizer,
    DPSinkhornSynthesizer,
    DPVAESynthesizer,
    GroupDivergence,
    ImageFeatures,
    LatentMixture,
    MomentSynthesizer,
    P3GMSynthesizer,
    PrivacyAccountant,
    PrivacyUnit,
    PriVAESynthesizer,
    PrivateSearchCV,
    SubsetSGD,
)
from skdpgen._types import BoundedUnit
from skdpgen.dpsgd import DPSGDPlan
from skdpgen.nn import DPNet, P3GMModule, PriVAEModule
from skdpgen.synthesizers._p3gm import paper_settings

pytestmark = [
    pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning"),
    pytest.mark.usefixtures("short_fits"),
]

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
        (DPVAESynthesizer(), "training__steps", "training=DPSGD()"),
        (DP2VAESynthesizer(), "training__steps", "training=SubsetSGD()"),
        (PriVAESynthesizer(), "divergence__alpha", "divergence=GroupDivergence()"),
    ],
)
def test_a_parameter_of_an_object_that_is_not_there_names_the_object(synth, name, named):
    with pytest.raises(ValueError, match=re.escape(named)):
        synth.set_params(**{name: 3})


def test_an_object_and_its_parameters_are_set_together():
    assert P3GMSynthesizer().set_params(decoder__n_steps=3, decoder=ImageFeatures()).decoder.n_steps == 3
    assert P3GMSynthesizer().set_params(decoder="released", unit=None, prior="mixture").prior == "mixture"
    assert (
        P3GMSynthesizer(training=DPSGD(net=DPNet(P3GMModule))).set_params(training__net__lr=0.5).training.net.lr == 0.5
    )


@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.PrivacyLeakWarning")
def test_a_grid_names_what_is_inside():
    search = GridSearchCV(
        P3GMSynthesizer(50.0, bounds=(0, 1), prior=LatentMixture(2), random_state=0), {"prior__n_iter": [1, 2]}, cv=2
    ).fit(X)
    assert search.best_estimator_.prior.n_iter in (1, 2)
    vae = DPVAESynthesizer(bounds=(0, 1), training=DPSGD(2, 0.5, net=DPNet(PriVAEModule, module__n_hidden=3)))
    search = GridSearchCV(vae, {"training__steps": [1, 2], "training__net__lr": [2e-3]}, cv=2).fit(X)
    assert search.best_estimator_.training.steps in (1, 2)
    assert search.best_estimator_.training.net.lr == 2e-3
    assert vae.training.net.lr != 2e-3


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
        made = make_flat(P3GMSynthesizer, preset="paper/adult", **parameters)
        return made._resolve(presets=paper_settings)

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
_INNER = [
    *((P3GMSynthesizer, name, f"training=DPSGD({name}=...)") for name in DPSGD().get_params()),
    (P3GMSynthesizer, "net__lr", "training=DPSGD(net=...)"),
    (P3GMSynthesizer, "weighting", "unit=PrivacyUnit(weighting=...)"),
    (P3GMSynthesizer, "covariance_type", "prior=LatentMixture(covariance_type=...)"),
    (P3GMSynthesizer, "n_iter", "prior=LatentMixture(n_iter=...)"),
    (P3GMSynthesizer, "n_scales", "decoder=ImageFeatures(n_scales=...)"),
    (PriVAESynthesizer, "alpha", "divergence=GroupDivergence(alpha=...)"),
    (PriVAESynthesizer, "gradient_bound", "GroupDivergence(gradient_bound=...) or training=DPSGD(gradient_bound=...)"),
    *((DP2VAESynthesizer, name, f"training=SubsetSGD({name}=...)") for name in SubsetSGD().get_params()),
    (DPSinkhornSynthesizer, "gradient_bound", "training=DPSGD(gradient_bound=...)"),
]


@pytest.mark.parametrize(("cls", "name", "place"), _INNER)
def test_a_parameter_of_an_object_is_refused_with_its_place(cls, name, place):
    for refused in (lambda: cls(**{name: 1}), lambda: cls().set_params(**{name: 1})):
        with pytest.raises(TypeError, match=f"{name.partition('__')[0]}.*{re.escape(place)}"):
            refused()


def test_parameters_of_a_class_itself_are_not_taken_for_those_of_an_object():
    assert skdpgen.DPGaussianMixture(covariance_type="diag").covariance_type == "diag"
    assert skdpgen.DPMERFSynthesizer(steps=3).steps == 3
    with pytest.raises(TypeError, match="unexpected keyword argument 'steps'"):
        MomentSynthesizer(steps=3)


@pytest.mark.parametrize(
    ("cls", "training", "named"),
    [
        (DPGMSynthesizer, DPSGD(warm_start_steps=3), "warm_start_steps="),
        (DPCGANSynthesizer, DPSGD(net=DPNet(P3GMModule)), "net="),
        (DPSinkhornSynthesizer, DPSGD(device="cpu"), "device="),
        (P3GMSynthesizer, DPSGD(3), "steps= of training= is used only with decoder='net'"),
    ],
)
def test_a_training_that_would_do_nothing_is_refused_before_the_charge(cls, training, named):
    books = PrivacyAccountant(10.0)
    with pytest.raises(ValueError, match=named):
        cls(1.0, bounds=(0, 1), training=training, accountant=books).fit(X)
    assert not books.entries
    for other in (SubsetSGD(), 5, {"steps": 3}):
        with pytest.raises(ValueError, match="'training' parameter"):
            cls(1.0, training=other, accountant=books).fit(X)
    with pytest.raises(ValueError, match="'steps' parameter of DPSGD"):
        cls(1.0, training=DPSGD(0), accountant=books).fit(X)


def test_a_training_sets_what_it_says_and_the_rest_is_at_the_default_of_the_class():
    usual = DPVAESynthesizer(bounds=(0, 1)).plan(X)
    same = DPVAESynthesizer(bounds=(0, 1), training=DPSGD(500, 0.02)).plan(X)
    assert usual.phases == same.phases
    assert [phase.steps for phase in DPVAESynthesizer(bounds=(0, 1), training=DPSGD(7)).plan(X).phases][-1] == 7
    made = DPVAESynthesizer(5.0, bounds=(0, 1), training=DPSGD(3)).fit(X)
    held = made.card_["model"]["parameters"]["training"]
    assert (held["steps"], held["sampling_rate"], held["gradient_bound"]) == (3, 0.02, 1.0)
    assert DPVAESynthesizer().training is None
    warm = DPVAESynthesizer(5.0, bounds=(0, 1), training=DPSGD(3, warm_start_steps=1)).plan(X)
    assert {"moments", "training"} <= {phase.label for phase in warm.phases}


def test_modules_of_the_caller_in_a_training_or_a_divergence_stand_on_the_card():
    def assumed(made):
        return {text.partition(":")[0] for text in made.fit(X).card_["public_assumptions"]}

    net = DPNet(PriVAEModule, module__n_hidden=3)
    training = DPSGD(2, 0.2, net=net)
    assert "net" in assumed(DPVAESynthesizer(bounds=(0, 1), training=training))
    assert not {"net", "divergence"} & assumed(PriVAESynthesizer(bounds=(0, 1), training=DPSGD(2, 0.2)))

    def divergence(latents, drawn):
        return (latents.mean() - drawn.mean()) ** 2

    class Named:
        kind = "mmd"

        def __call__(self, latents, drawn):
            return divergence(latents, drawn)

    for own in (divergence, GroupDivergence(divergence), Named(), GroupDivergence(Named())):
        assert "divergence" in assumed(PriVAESynthesizer(bounds=(0, 1), divergence=own, training=DPSGD(2, 0.2)))


def test_a_default_that_is_given_is_not_taken_for_none():
    twice = DPVAESynthesizer(bounds=(0, 1), neighboring="replace_one", training=DPSGD(500, epochs=1))
    with pytest.raises(ValueError, match="steps and epochs set the same thing"):
        twice.plan(X)
    with pytest.raises(ValueError, match="sets steps"):
        DPCGANSynthesizer(bounds=(0, 1), preset="paper/mnist", training=DPSGD(3000)).plan(X)
    by_epochs = DPVAESynthesizer(5.0, bounds=(0, 1), neighboring="replace_one", training=DPSGD(epochs=1, batch_size=30))
    held = by_epochs.fit(X).card_["model"]["parameters"]["training"]
    assert (held["epochs"], held["steps"]) == (1, None)


def test_constructors_stay_small():
    most = {"P3GMSynthesizer": 26, "DP2VAESynthesizer": 25, "PriVAESynthesizer": 24, "DPVAESynthesizer": 22}
    found = {name: len(getattr(skdpgen, name)().get_params(deep=False)) for name in most}
    assert all(found[name] <= most[name] for name in most), found


def _of_units():
    return MomentSynthesizer(bounds=(0, 1), l2_bound=2.0, unit=PrivacyUnit("person", 2))


def _of_mixture():
    return P3GMSynthesizer(bounds=(0, 1), l2_bound=2.0, prior=LatentMixture(2, n_iter=1))


def _of_training():
    divergence = GroupDivergence(n_groups=1)
    return PriVAESynthesizer(bounds=(0, 1), divergence=divergence, training=DPSGD(2, 0.5), neighboring="replace_one")


def _of_subsets():
    return DP2VAESynthesizer(bounds=(0, 1), l2_bound=1.0, training=SubsetSGD(5, 2, warm_start_steps=1))


@pytest.mark.parametrize(
    ("make", "data", "name"),
    [
        *[(_of_units, (X, None, IDS), f"unit__{name}") for name in PrivacyUnit().get_params()],
        *[(_of_mixture, (X,), f"prior__{name}") for name in LatentMixture().get_params()],
        *[(_of_training, (X,), f"training__{name}") for name in DPSGD().get_params()],
        *[(_of_training, (X,), f"divergence__{name}") for name in GroupDivergence().get_params()],
        *[(_of_subsets, (X,), f"training__{name}") for name in SubsetSGD().get_params()],
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
            with pytest.raises(Exception, match=f"{inner}|unit|identifiers|noise|records|divergence"):
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
