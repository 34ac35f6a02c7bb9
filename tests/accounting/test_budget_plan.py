"""A plan to be read before it is paid."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from _flat import make_flat

from skdpgen import (
    DPPCA,
    DPSGD,
    DP2VAESynthesizer,
    DPGaussianMixture,
    P3GMSynthesizer,
    PrivacyAccountant,
    PrivateSearchCV,
    SubsetSGD,
)
from skdpgen.accounting import (
    BudgetPlan,
    Phase,
    PrivacyCard,
    epsilon_pld,
    gaussian_event,
    non_private_event,
    repeat_and_select_event,
    subset_gaussian_event,
)
from skdpgen.accounting._calibration import FitPlan
from skdpgen.accounting._events import releases

X = np.random.default_rng(0).normal(size=(200, 3))


def test_a_plan_shows_noise_split_signal_and_curve_and_charges_nothing():
    accountant = PrivacyAccountant(5.0)
    pca = DPPCA(2, bounds=(-4, 4), accountant=accountant, epsilon=1.0).plan(X)
    shown = BudgetPlan.of(pca, n_rows=10_000)
    assert not accountant.charges
    assert [row.phase for row in shown.phases] == [phase.label for phase in pca.phases]
    assert sum(row.share for row in shown.phases) == pytest.approx(1)
    for row in shown.phases:
        assert row.noise_multiplier == pca.noise_multipliers[row.phase]
        assert row.signal_to_noise == pytest.approx(10_000 / row.noise_multiplier)
    assert shown.epsilon == pytest.approx(1.0, rel=1e-6)
    assert dict(shown.curve)[1e-6] == epsilon_pld(pca, 1e-6, "add_or_remove_one")
    assert "nothing was charged" in str(shown)


def test_fits_declared_together_cost_what_the_books_then_say():
    accountant = PrivacyAccountant(3.0)
    plans = [
        DPPCA(2, bounds=(-4, 4), accountant=accountant).plan(X),
        DPGaussianMixture(bounds=(-4, 4), accountant=accountant).plan(X),
    ]
    shown = BudgetPlan.of(plans, n_rows=500)
    accountant.plan(plans)
    assert shown.epsilon == accountant.epsilon_spent()
    assert {row.fit for row in shown.phases} == {"DPPCA", "DPGaussianMixture"}


@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
@pytest.mark.parametrize("mechanism", ["poisson_gaussian", "poisson_subsets", "one_of_k", "index_revealed"])
def test_the_shares_of_the_books_are_those_of_the_plan_also_of_sampled_steps(mechanism, relation):
    accountant = PrivacyAccountant(3.0, neighboring=relation)
    steps = Phase("decoder", 0.4, steps=50, sampling_rate=0.05, mechanism=mechanism)
    phases = [Phase("pca", 0.1), Phase("mixture", 0.5, steps=10), steps]
    plan = accountant.calibrate(phases, label="P3GM: pca, mixture, decoder")
    accountant.charge(plan.event, plan.label, plan.extra_delta)
    report = accountant.report()
    planned = [row.share for row in BudgetPlan.of(plan, 1000).phases]
    assert planned == pytest.approx([0.1, 0.5, 0.4])
    assert report["share"].tolist() == pytest.approx(planned)
    assert accountant.fits()["share"].tolist() == [1.0]
    card = PrivacyCard.build(plan, accountant, model="P3GM", parameters={}, noise="secure")
    html = card._repr_html_()
    assert all(f"<td>{share:.4g}</td>" in html for share in planned)


def test_shares_are_unknown_beside_a_release_without_noise():
    accountant = PrivacyAccountant(math.inf)
    accountant.charge(gaussian_event(3.0), "a count")
    accountant.charge(gaussian_event(3.0), "another")
    assert accountant.report()["share"].tolist() == [0.5, 0.5]
    accountant.charge(non_private_event(), "a sum")
    assert accountant.report()["share"].isna().all()
    assert accountant.fits()["share"].isna().all()


def test_fits_of_one_name_are_numbered_in_a_plan():
    plans = [DPPCA(k, bounds=(-4, 4), epsilon=1.0).plan(X) for k in (1, 2)]
    shown = BudgetPlan.of([*plans, DPGaussianMixture(bounds=(-4, 4)).plan(X)], n_rows=500)
    assert list(dict.fromkeys(row.fit for row in shown.phases)) == ["DPPCA 1", "DPPCA 2", "DPGaussianMixture"]
    table = pd.DataFrame({"job": ["a", "b"] * 30})
    shown = BudgetPlan.of([P3GMSynthesizer(1.0).plan(table)] * 2, n_rows=500)
    assert {row.fit for row in shown.counts} == {"P3GMSynthesizer 1", "P3GMSynthesizer 2"}
    assert "(P3GMSynthesizer 2)" in str(shown)


def test_a_plan_of_one_fit_prints_as_a_table():
    plan = P3GMSynthesizer(2.0, decoder="net", training=DPSGD(50, 0.02), bounds=(-4, 4), l2_bound=1.0).plan(X)
    first, head, *rows, last = str(plan).splitlines()
    assert first == "plan of P3GMSynthesizer: epsilon 2 at delta 1e-05, add_or_remove_one of one row"
    assert head.split() == ["phase", "share", "steps", "sampling", "noise"]
    assert [row.split()[0] for row in rows] == [phase.label for phase in plan.phases]
    assert rows[-1].split()[2:] == ["50", "0.02", f"{plan.noise_multipliers['decoder']:.4g}"]
    assert last.startswith("a plan charges nothing; BudgetPlan.of(plan, n_rows) adds ")
    html = plan._repr_html_()
    assert html.count("<tr>") == len(rows) + 1
    assert repr(plan).startswith("FitPlan(label='P3GMSynthesizer: ")
    assert str(P3GMSynthesizer(np.inf, bounds=(-4, 4)).plan(X)).startswith("plan of P3GMSynthesizer: epsilon inf")


def test_sampled_steps_a_search_and_no_noise_are_shown_as_they_are():
    net = P3GMSynthesizer(decoder="net", training=DPSGD(50, 0.02), bounds=(-4, 4), l2_bound=1.0).plan(X)
    decoder = BudgetPlan.of(net, n_rows=1000).phases[-1]
    assert decoder.steps == 50
    assert decoder.signal_to_noise == pytest.approx(0.02 * 1000 / decoder.noise_multiplier)
    search = PrivateSearchCV(DPPCA(bounds=(-4, 4)), {"n_components": [1, 2]}, score_bounds=(-20, 10)).plan(X)
    rows = BudgetPlan.of(search, n_rows=1000).phases
    labels = ["each candidate: l2_bound", "each candidate: moments", "score"]
    assert [row.phase for row in rows] == [f"run may be: {label}" for label in labels]
    assert rows[0].share + rows[1].share == pytest.approx(1)
    assert rows[2].signal_to_noise == pytest.approx(0.2 * 1000 / rows[2].noise_multiplier)  # a fifth is held out
    free = BudgetPlan.of(DPPCA(epsilon=np.inf).plan(X), n_rows=10)
    assert free.epsilon == math.inf
    assert json.loads(json.dumps(free.to_dict()))["epsilon"] == "inf"


@pytest.mark.parametrize(
    ("sampler", "per_step", "signal"), [("poisson", 4, 4.0), ("one_of_k", 1, 0.5), ("balanced", 16, 8.0)]
)
def test_the_signal_of_a_step_on_subsets_is_its_clipped_means_and_not_its_rows(sampler, per_step, signal):
    """One mean of norm C a subset, whatever the number of rows; where noise is a multiple of 2 C, half of that."""
    options = {"n_subsets": 20, "steps": 40, "warm_start_steps": 0, "bounds": (-4, 4)}
    model = make_flat(DP2VAESynthesizer, sampler=sampler, subsets_per_step=per_step, **options)
    plan = model.plan(X)
    for n_rows in (200, 100_000):
        decoder = BudgetPlan.of(plan, n_rows=n_rows).phases[-1]
        assert decoder.signal_to_noise == pytest.approx(signal / decoder.noise_multiplier)


def test_a_search_over_steps_on_subsets_shows_their_signal():
    model = DP2VAESynthesizer(training=SubsetSGD(20, subsets_per_step=4, warm_start_steps=0), bounds=(-4, 4))
    search = PrivateSearchCV(model, {"training__steps": [10, 40]}, score_bounds=(-20, 10), runs="logarithmic")
    shown = BudgetPlan.of(search.plan(X), n_rows=1000)
    rows = {row.phase: row for row in shown.phases}
    for k, steps in enumerate((10, 40)):
        decoder = rows[f"run may be: candidate {k + 1}: decoder"]
        assert decoder.steps == steps
        assert decoder.signal_to_noise == pytest.approx(4 / decoder.noise_multiplier)
    assert "no signal" not in str(shown)


def test_where_the_number_of_subsets_is_not_told_no_signal_is():
    event = repeat_and_select_event([subset_gaussian_event("poisson_subsets", 0.1, 2.0, 9)], "poisson", 2)
    shown = BudgetPlan.of(FitPlan("search", (), {}, releases(event), 0.0, 1.0, 1e-5, "add_or_remove_one"), n_rows=100)
    assert shown.phases[0].signal_to_noise is None
    assert "poisson_subsets" in str(shown)
    assert "does not say how many subsets" in str(shown)
    assert json.loads(json.dumps(shown.to_dict()))["phases"][0]["signal_to_noise"] is None


def test_a_plan_can_be_drawn(tmp_path):
    figure = BudgetPlan.of(DPPCA(2).plan(X), n_rows=100).plot(tmp_path / "plan.png")
    assert (tmp_path / "plan.png").stat().st_size > 1000
    assert len(figure.axes) == 2


def test_what_is_no_plan_is_refused():
    plan = DPPCA(2).plan(X)
    other = DPPCA(2, neighboring="replace_one").plan(X)
    for wrong, message in (
        ([], "at least one FitPlan"),
        ("plan", "at least one FitPlan"),
        ([plan, other], "same neighboring"),
    ):
        with pytest.raises(ValueError, match=message):
            BudgetPlan.of(wrong, n_rows=10)
    with pytest.raises(ValueError, match="n_rows"):
        BudgetPlan.of(plan, n_rows=0)


def test_the_remark_on_a_large_epsilon_names_who_is_protected():
    parameters = {"bounds": (0, 1), "unit": "pid", "max_rows_per_unit": 2}
    rows, ids = np.random.default_rng(0).random((40, 3)), np.arange(40) // 2
    of_units = BudgetPlan.of(DPPCA(2, epsilon=20.0, **parameters).plan(rows, groups=ids), 40)
    assert of_units.unit == "pid"
    assert "guess about all rows of one pid by" in str(of_units)
    of_rows = BudgetPlan.of(DPPCA(2, epsilon=20.0, bounds=(0, 1)).plan(rows), 40)
    assert of_rows.unit is None
    assert "guess about one row by" in str(of_rows)
