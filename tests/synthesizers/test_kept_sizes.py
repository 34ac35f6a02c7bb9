"""One pair of sizes says which learned categories a fit keeps: in plans, in summaries and in warnings."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pandas as pd
import pytest

from skdpgen import MomentSynthesizer, P3GMSynthesizer, PrivacyAccountant, PrivacyUnit, Schema
from skdpgen.accounting import BudgetPlan
from skdpgen.exceptions import UtilityWarning
from skdpgen.mechanisms import selection_threshold
from skdpgen.synthesizers._count_errors import joint_sd, kept_sizes, smallest_kept
from skdpgen.tabular import Categorical, Numeric
from skdpgen.tabular._schema_cells import SelectedCounts

pytestmark = pytest.mark.usefixtures("short_fits")

RELATION = "add_or_remove_one"


def _frame(n_rows=3000, rare=0.02):
    rng = np.random.default_rng(0)
    towns = ["home", *(f"town {k}" for k in range(200))]
    frame = pd.DataFrame({"x": rng.normal(size=n_rows), "town": rng.choice(towns, n_rows, p=[0.4, *[0.003] * 200])})
    frame["ill"] = np.where(rng.random(n_rows) < rare, "yes", "no")
    return frame


def _said(text):
    found = re.findall(r"fewer than (\d+) (?:rows|units) are usually lost, those of (\d+) or more almost never", text)
    return {tuple(map(int, pair)) for pair in found}


def test_a_category_at_the_first_size_is_lost_as_often_as_kept_and_one_at_the_second_is_kept():
    rng, noise = np.random.default_rng(0), {"schema": 20.0}
    sizes = kept_sizes(6, SelectedCounts(3, 1), noise, 1e-6, RELATION)
    sd, threshold = joint_sd(6, 20.0, RELATION), selection_threshold(joint_sd(6, 20.0, RELATION), 1e-6, 3)
    assert sizes.lost == threshold
    assert sizes.kept == smallest_kept(6, 3, 20.0, 1e-6, RELATION)
    draws = rng.normal(0, sd, 200_000)
    assert np.mean(sizes.lost + draws > threshold) == pytest.approx(0.5, abs=0.01)
    assert np.mean(sizes.kept + draws > threshold) == pytest.approx(0.95, abs=0.01)
    # a second look, at one column at best, has half of the delta and less noise
    twice = kept_sizes(6, SelectedCounts(3, 1), {"schema": 20.0, "categories": 10.0}, 1e-6, RELATION)
    assert twice.lost == selection_threshold(joint_sd(1, 10.0, RELATION), 5e-7, 1)
    assert twice.kept == smallest_kept(6, 3, 20.0, 5e-7, RELATION)
    assert kept_sizes(6, SelectedCounts(), noise, 1e-6, RELATION) is None
    assert kept_sizes(6, SelectedCounts(3, 1), {"schema": 0.0}, 1e-6, RELATION) is None


@pytest.mark.parametrize("options", [{}, {"unit": PrivacyUnit("pid", 2, weighting="units")}], ids=["rows", "units"])
@pytest.mark.parametrize("model", [MomentSynthesizer, P3GMSynthesizer])
def test_plan_summary_and_warnings_state_the_same_sizes(model, options):
    frame = _frame().assign(**({"pid": np.arange(3000) // 2} if options else {}))
    synth = model(1.0, random_state=0, target="ill", **options)
    planned = BudgetPlan.of(synth.plan(frame), 3000)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        synth.fit(frame)
    texts = [str(warning.message) for warning in said]
    lost = [text for text in texts if '"other" in much of' in text or "the classes of the target" in text]
    assert len(lost) == 2
    summary = synth.summary_
    sizes = {(round(summary.usually_lost), round(summary.smallest_kept))}
    assert _said(repr(summary)) == _said(" ".join(lost)) == sizes
    assert sizes <= _said(str(planned))
    of_towns = next(row for row in planned.counts if row.kind == "learned category")
    assert (of_towns.usually_lost, of_towns.smallest_kept) == (summary.usually_lost, summary.smallest_kept)
    assert planned.to_dict()["counts"][0]["usually_lost"] == of_towns.usually_lost


def test_a_fit_that_learns_classes_warns_before_the_charge():
    budget = PrivacyAccountant(1.0, 1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UtilityWarning)
        with pytest.raises(
            UtilityWarning, match=r"the target 'ill' are learned: .* by classes=\[\.\.\.\], or the schema"
        ):
            MomentSynthesizer(1.0, target="ill", accountant=budget).fit(_frame())
    assert budget.epsilon_spent() == 0


def test_the_warning_of_classes_of_whole_numbers_says_how_to_take_them_for_a_quantity():
    frame = _frame().assign(days=lambda rows: np.arange(len(rows)) % 40)
    for target, wanted in (("days", True), ("ill", False)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            MomentSynthesizer(1.0, target=target).fit(frame)
        said = next(str(each.message) for each in caught if "the classes of the target" in str(each.message))
        assert ('quantity, and no classes, give target_type="numeric" (--set target_type=numeric)' in said) == wanted
        assert said.startswith("if the whole numbers of 'days' are a quantity" if wanted else "the classes of")


def test_several_targets_of_whole_numbers_are_declared_in_the_schema():
    frame = _frame().assign(days=lambda rows: np.arange(len(rows)) % 40)
    with pytest.warns(UtilityWarning) as caught:
        MomentSynthesizer(1.0, target=["days", "ill"]).fit(frame)
    said = next(str(each.message) for each in caught if "the classes of the target" in str(each.message))
    assert "declare them in the schema as Numeric(name, (low, high), integer=True)" in said
    assert "target_type" not in said


def test_many_learned_whole_numbers_of_a_target_may_be_a_quantity():
    amounts = np.random.default_rng(0).normal(300, 60, 3_000).round(-1).astype(int)
    frame = pd.DataFrame({"amount": amounts, "x": np.random.default_rng(1).random(3_000)})
    schema = Schema([Numeric("x", (0, 1))])
    with pytest.warns(UtilityWarning, match=r'"other" is written as .* -1 in .amount.*target_type="numeric"'):
        model = MomentSynthesizer(10.0, target="amount", schema=schema).fit(frame)
    assert len(model.classes_) > 20
    with warnings.catch_warnings():
        warnings.simplefilter("error", UtilityWarning)
        MomentSynthesizer(10.0, target="amount", target_type="numeric", schema=schema).fit(frame)


def test_a_target_that_the_schema_gives_no_dtype_is_learned():
    for column in (Categorical("ill"), Categorical("ill", hierarchy=1)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            MomentSynthesizer(1.0, target="ill", schema=Schema([column])).fit(_frame())
        assert any("the classes of the target 'ill' are learned" in str(each.message) for each in caught)


@pytest.mark.parametrize("relation", [RELATION, "replace_one"])
def test_the_learned_classes_of_an_array_have_the_warning_before_the_charge_and_one_of_a_single_class(relation):
    X, said = np.random.default_rng(0).uniform(size=(2_000, 3)), []
    for y, alone in ((np.arange(2_000) % 2, False), (np.arange(2_000) % 200 == 0, True)):
        accountant = PrivacyAccountant(1.0, neighboring=relation)
        model = P3GMSynthesizer(accountant=accountant, bounds=(0, 1))
        with warnings.catch_warnings():
            warnings.simplefilter("error", UtilityWarning)
            with pytest.raises(UtilityWarning, match="the classes of y are learned") as before:
                model.fit(X, y.astype(int))
        assert not accountant.charges
        said.append(str(before.value))
        with pytest.warns(UtilityWarning) as caught:
            model.fit(X, y.astype(int))
        after = [str(w.message) for w in caught if "one class alone was learned of y (0)" in str(w.message)]
        assert len(after) == alone
        assert list(model.classes_) == ([0] if alone else [0, 1])
    assert said[0] == said[1]
    noise = model.card_.charges[0].releases
    z = next(r.noise_multiplier for r, name in zip(noise, model.accountant_.report()["release"]) if name == "classes")
    lost = selection_threshold(joint_sd(1, z, relation), 1e-6)
    assert f"those of fewer than {lost:.0f} rows are usually lost" in said[0]
    assert 'give target_type="numeric"' in said[0]


@pytest.mark.parametrize("weighting", ["rows", "units"])
def test_sizes_of_classes_assume_a_number_of_rows_of_a_unit_where_it_is_learned(weighting):
    X, y, groups = np.random.default_rng(0).uniform(size=(600, 3)), np.arange(600) % 2, np.arange(600) // 3
    unit, said = PrivacyUnit("person", weighting=weighting), []
    frame = pd.DataFrame(X, columns=list("abc")).assign(ill=y, person=groups)
    array = P3GMSynthesizer(0.5, bounds=(0, 1), unit=PrivacyUnit(weighting=weighting))
    table = MomentSynthesizer(0.5, target="ill", unit=unit)
    for model, data in ((array, (X, y, groups)), (table, (frame,))):
        for most in (5, None):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                model.set_params(max_rows_per_unit=most).fit(*data)
            (text,) = [str(w.message) for w in caught if "the classes of" in str(w.message)]
            said.append(
                (int(re.search(r"fewer than (\d+)", text)[1]), "(with 5 rows of a unit; the fit learns" in text)
            )
    for (declared, _), (learned, stated) in (said[:2], said[2:]):
        assert stated
        assert declared <= learned <= 1.5 * declared  # the count of rows has a part of the budget
    assert not said[0][1]


def test_declared_classes_of_an_array_and_little_noise_need_no_warning():
    X, y = np.random.default_rng(0).uniform(size=(2_000, 3)), np.arange(2_000) % 2
    with warnings.catch_warnings():
        warnings.simplefilter("error", UtilityWarning)
        P3GMSynthesizer(1.0, bounds=(0, 1), classes=[0, 1]).fit(X, y)
        P3GMSynthesizer(5.0, bounds=(0, 1)).fit(X, y)
        P3GMSynthesizer(np.inf, bounds=(0, 1)).fit(X, np.zeros(2_000, dtype=int))


@pytest.mark.parametrize("kind", ["frame", "array"])
@pytest.mark.parametrize("make", [MomentSynthesizer, P3GMSynthesizer])
def test_a_fit_whose_noise_hides_every_class_leads_with_this_and_with_what_to_do_about_whole_numbers(make, kind):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1_500, 3))
    X = pd.DataFrame(X, columns=list("abc")) if kind == "frame" else X
    for y, quantity in ((np.arange(1_500), True), (np.arange(1_500).astype(str), False)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UtilityWarning)
            make(3.0).fit(X, y)
        said = next(str(w.message) for w in caught if "hides every class" in str(w.message))
        name = "'target'" if kind == "frame" else "y"
        assert said.startswith(f"the noise hides every class of {name}, so the model has a single class. ")
        assert said.partition("single class. ")[2].startswith("Whole numbers" if quantity else "Declare classes=")
        assert ('if they are a quantity, fit again with target_type="numeric"' in said) == quantity
        assert ("; else declare classes=" if quantity else ". Declare classes=") in said


def test_the_warning_of_classes_depends_on_no_row():
    said = []
    for frame in (_frame(), _frame(300, rare=0.5), _frame().assign(ill="no")):
        with pytest.warns(UtilityWarning) as caught:
            MomentSynthesizer(1.0, target="ill").fit(frame)
        said.append([str(w.message) for w in caught if "the classes of the target" in str(w.message)])
    assert len(said[0]) == 1
    assert said[0] == said[1] == said[2]


@pytest.mark.parametrize(
    "options",
    [
        {"target": "ill", "classes": ["no", "yes"]},
        {"target": "ill", "schema": Schema([Categorical("ill", ("no", "yes"))])},
        {"target": "x", "target_type": "numeric"},
        {"target": "ill", "epsilon": 20.0},  # of so little noise that classes of 100 rows are kept
        {},
    ],
)
def test_declared_classes_and_little_noise_need_no_warning(options):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        MomentSynthesizer(**{"epsilon": 1.0} | options).fit(_frame())
    assert not any("the classes of the target" in str(warning.message) for warning in said)


@pytest.mark.parametrize(
    ("model", "release", "said"),
    [
        (MomentSynthesizer, "bins", "The release 'bins' is one of 'bounds', the share of each kind of fact"),
        (MomentSynthesizer, "moments", "the release 'moments', that gets what the entries leave"),
        (P3GMSynthesizer, "triples", "The release 'triples' is one of 'encoder'"),
        (P3GMSynthesizer, "features", "The release 'features' is one of 'decoder'"),
        (P3GMSynthesizer, "nonsense", "'decoder'$"),
    ],
)
def test_a_split_by_the_label_of_a_release_is_refused_with_the_entry_that_holds_it(model, release, said):
    budget = PrivacyAccountant(1.0, 1e-5)
    with pytest.raises(ValueError, match=f"no entry {release!r} here; it takes 'bounds', 'target'.*{said}"):
        model(1.0, accountant=budget, budget_split={release: 0.1}).fit(_frame())
    assert budget.epsilon_spent() == 0
