"""The privacy card: true when written, and caught when changed."""

import copy
import json
import math
import re
import tempfile
from pathlib import Path

import numpy as np
import pytest

from skdpgen import DPPCA, PrivateSearchCV
from skdpgen._types import BoundedUnit
from skdpgen.accounting import Charge, Phase, PrivacyAccountant, PrivacyCard, epsilon_pld, epsilon_rdp, gaussian_event
from skdpgen.accounting import _card as module
from skdpgen.accounting._accountant import detached_accountant
from skdpgen.accounting._calibration import make_plan
from skdpgen.accounting._card import digest
from skdpgen.accounting._filter import Entry
from skdpgen.dpsgd._subsets import SubsetPlan
from skdpgen.exceptions import BudgetExceededError

PHASES = [Phase("moments", 0.3), Phase("decoder", 0.7, 20, 0.2)]


def make_card(neighboring="add_or_remove_one", epsilon=1.0, later=False, **options):
    accountant = PrivacyAccountant(3.0 if later else epsilon, 1e-5, neighboring)
    plan = accountant.calibrate(PHASES, label="P3GM", epsilon=epsilon, extra_delta_share=0.1)
    accountant.charge(plan.event, plan.label, plan.extra_delta)
    if later:
        more = accountant.calibrate([Phase("moments", 1.0)], label="later", epsilon=0.3)
        accountant.charge(more.event, more.label)
    return PrivacyCard.build(
        plan,
        accountant,
        model="P3GMSynthesizer",
        parameters={"n_components": np.int64(10), "lr": 1e-3, "epsilon": math.inf, "net": object(), "x": [1, None]},
        public_assumptions=["bounds of column age"],
        noise="AES-CTR, 64 bits a uniform",
        columns=[{"name": "age", "kind": "numeric", "bounds": [0, 120], "from": "schema"}, {"name": 7}],
        declared={"classes": ["a", "b"], "bounds": None},
        **options,
    )


def signed(content):
    """The card with a digest that fits, as a forger would write it."""
    body = {name: value for name, value in content.items() if name != "digest"}
    return PrivacyCard({**body, "digest": digest(body)})


def leaves(value, trail=()):
    if isinstance(value, dict):
        for name, item in value.items():
            yield from leaves(item, (*trail, name))
    elif isinstance(value, list):
        for k, item in enumerate(value):
            yield from leaves(item, (*trail, k))
    else:
        yield trail


def changed(content, trail):
    content = copy.deepcopy(content)
    inner = content
    for step in trail[:-1]:
        inner = inner[step]
    old = inner[trail[-1]]
    if isinstance(old, bool) or old is None:
        inner[trail[-1]] = 1 if old is None else not old
    elif isinstance(old, (int, float)):
        inner[trail[-1]] = old * 1.5 + 1e-7 if isinstance(old, float) else old + 1
    else:
        inner[trail[-1]] = old + "x"
    return content


@pytest.mark.parametrize("name", ["epsilon", "epsilon_rdp"])
def test_the_figures_of_a_fit_are_those_at_the_delta_that_stands_beside_them(name):
    """A fit may have a smaller delta than its accountant, and then costs a larger epsilon there."""
    accountant = PrivacyAccountant(3.0, 1e-5)
    plan = accountant.calibrate(PHASES, label="P3GM", epsilon=1.0, delta=1e-7)
    accountant.charge(plan.event, plan.label)
    card = PrivacyCard.build(plan, accountant, model="P3GM", parameters={}, noise="secure")
    at = {"epsilon": epsilon_pld, "epsilon_rdp": epsilon_rdp}[name]
    assert card["fit"]["delta"] == 1e-7
    assert (
        card["fit"][name] == at(plan.event, 1e-7, "add_or_remove_one") > 1.1 * at(plan.event, 1e-5, "add_or_remove_one")
    )
    assert card.verify()["fit"] == {"epsilon": card["fit"]["epsilon"], "delta": 1e-7}


@pytest.mark.parametrize("neighboring", ["add_or_remove_one", "replace_one"])
@pytest.mark.parametrize("later", [False, True])
def test_a_true_card_verifies_after_a_trip_through_a_file(neighboring, later, tmp_path):
    card = make_card(neighboring, later=later)
    card.save(tmp_path / "card.json")
    loaded = PrivacyCard.load(tmp_path / "card.json")
    assert loaded == card
    found = loaded.verify()
    assert found["private"] is True
    assert found["neighboring"] == neighboring
    assert 0.999 <= found["fit"]["epsilon"] <= 1.0
    assert found["fit"]["delta"] == 1e-5
    assert found["ledger"]["epsilon"] <= found["ledger"]["budget_epsilon"] == (3.0 if later else 1.0)
    assert (card["fit"]["epsilon_rdp"] is None) == (neighboring == "replace_one")
    assert card["model"]["parameters"] == {
        "n_components": 10,
        "lr": 1e-3,
        "epsilon": "inf",
        "net": "<object>",
        "x": [1, None],
    }


def test_any_changed_field_breaks_the_digest():
    content = json.loads(make_card(later=True).to_json())
    for trail in leaves(content):
        with pytest.raises(ValueError, match=r"digest|format|columns|date"):
            PrivacyCard(changed(content, trail)).verify()


def test_a_changed_event_or_figure_fails_even_with_a_new_digest():
    content = json.loads(make_card(later=True).to_json())
    free = {"unit", "model", "public_assumptions", "noise", "versions", "digest", "columns", "declared"}
    # the first two say less privacy than there is; the last is another fit's name
    harmless = {("private",), ("fit", "epsilon_asked"), ("ledger", "charges", 1, "label")}
    missed = []
    for trail in leaves(content):
        if trail[0] in free or trail in harmless:
            continue
        try:
            signed(changed(content, trail)).verify()
        except ValueError:
            continue
        missed.append(trail)
    assert missed == []
    content["fit"]["epsilon_asked"] = 0.9
    with pytest.raises(ValueError, match=r"more than the 0\.9 asked for"):
        signed(content).verify()


def test_a_smaller_epsilon_or_more_noise_than_ran_is_caught():
    content = json.loads(make_card().to_json())
    content["fit"]["epsilon"] = 0.5
    with pytest.raises(ValueError, match=r"fit: epsilon is stated as 0\.5, and the events give"):
        signed(content).verify()
    content = json.loads(make_card().to_json())
    content["fit"]["charges"][0]["event"]["events"][1]["noise_multiplier"] *= 1.01
    with pytest.raises(ValueError, match="fit: epsilon is stated as"):
        signed(content).verify()


def test_a_fit_missing_from_the_ledger_and_a_ledger_over_budget_are_caught():
    content = json.loads(make_card(later=True).to_json())
    content["ledger"]["charges"][0]["label"] = "another"
    with pytest.raises(ValueError, match="is not in the ledger"):
        signed(content).verify()
    content = json.loads(make_card(later=True).to_json())
    content["ledger"]["budget_epsilon"] = 1.05
    with pytest.raises(ValueError, match=r"alpha|would have refused"):
        signed(content).verify()


@pytest.mark.parametrize("unit", [None, BoundedUnit("person", 3), BoundedUnit("person", 3, "units")])
@pytest.mark.parametrize("epsilon", [1.0, 20.0])
def test_a_card_says_whether_its_ledger_saw_one_fit_alone_and_whether_it_protects_hardly_anybody(unit, epsilon):
    accountant = PrivacyAccountant(50.0, unit=None if unit is None else unit.name)
    for alone in (True, False):
        plan = accountant.calibrate([Phase("moments", 1.0)], label=f"alone: {alone}", epsilon=epsilon, unit=unit)
        accountant.charge(plan.event, plan.label, unit=plan.charge.unit)
        said = PrivacyCard.build(plan, accountant, model="", parameters={}, noise="secure").remarks
        assert ["this fit alone" in text for text in said if "hardly" not in text] == [True] * alone
        whom = "one row" if unit is None else "one person"
        assert [whom in text for text in said if "hardly" in text] == [True] * (epsilon > 10)


# charges (mu, delta of thresholds) of each batch: alike, the first alone large, with thresholds, several declared
BATCHES = {
    "alike": [[(0.1, 0.0)]] * 5,
    "a large first one": [[(0.4, 0.0)], [(0.1, 0.0)], [(0.1, 0.0)]],
    "a large last one": [[(0.1, 0.0)], [(0.1, 0.0)], [(0.4, 0.0)]],
    "thresholds": [[(0.1, 1e-6)], [(0.1, 8e-7)], [(0.1, 1e-7)]],
    "too many thresholds": [[(0.1, 1e-6)], [(0.1, 8e-7)], [(0.1, 8e-7)]],
    "several in each": [[(0.1, 0.0), (0.2, 0.0)], [(0.15, 0.0), (0.1, 0.0)]],
    "several at once": [[(0.1, 0.0), (0.2, 1e-6), (0.15, 0.0)]],
}


@pytest.mark.parametrize("neighboring", ["add_or_remove_one", "replace_one"])
@pytest.mark.parametrize("name", BATCHES)
def test_a_card_verifies_with_those_budgets_alone_that_would_have_accepted_its_charges(name, neighboring):
    """A card whose figures all agree with one another may still have a ledger that no accountant would have made."""
    batches = [
        [Charge(f"fit {number}.{k}", gaussian_event(1 / mu), extra) for k, (mu, extra) in enumerate(batch)]
        for number, batch in enumerate(BATCHES[name])
    ]

    def books(budget):
        accountant = PrivacyAccountant(budget, 1e-5, neighboring)
        for batch in batches:
            accountant.plan(batch)
            for charge in batch:
                accountant.charge(charge.event, charge.label, charge.extra_delta)
        return accountant

    entries, found = [Entry(charge, k, "charged") for k, batch in enumerate(batches, 1) for charge in batch], set()
    first = batches[0][0]
    plan = make_plan(
        (Phase("fit", 1.0),), 1 / first.releases[0].noise_multiplier, label=first.label, extra_delta=first.extra_delta,
        epsilon=9.0, delta=1e-5, neighboring=neighboring,
    )  # fmt: skip
    for budget in np.geomspace(0.3, 12, 60):
        forged = detached_accountant(entries, (budget, 1e-5, neighboring, 0.2, None))
        card = PrivacyCard.build(plan, forged, model="M", parameters={}, noise="secure")
        try:
            assert books(budget).charges == tuple(entry.charge for entry in entries)
        except BudgetExceededError:
            with pytest.raises(ValueError, match="would have refused"):
                card.verify()
            found.add("refused")
        else:
            card.verify()
            found.add("accepted")
    assert found == ({"refused"} if name == "too many thresholds" else {"refused", "accepted"})


def test_a_change_anywhere_in_a_file_of_a_card_is_found():
    content = bytearray(b"1,2\n" * 600_000)  # more than is read at once
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder, "rows.csv")
        rows.write_bytes(content)
        card = make_card().with_files(synthetic=rows)
        for place in (0, 2**20 + 1, len(content) - 2):
            rows.write_bytes(content[:place] + b"9" + content[place + 1 :])
            with pytest.raises(ValueError, match="not the synthetic rows that the card was written with"):
                card.check_files(synthetic=rows)


def test_only_a_charged_plan_gets_a_card():
    accountant = PrivacyAccountant(1.0)
    plan = accountant.calibrate([Phase("a", 1.0)], label="x")
    build = {"model": "M", "parameters": {}, "noise": "secure"}
    with pytest.raises(ValueError, match="was not charged"):
        PrivacyCard.build(plan, accountant, **build)
    accountant.plan([plan])
    with pytest.raises(ValueError, match="was not charged"):
        PrivacyCard.build(plan, accountant, **build)
    accountant.charge(plan.event, plan.label)
    card = PrivacyCard.build(plan, accountant, **build)
    card.verify()
    # nor does one verify whose fit was declared alone: it has made no model
    content = json.loads(card.to_json())
    content["ledger"]["charges"][0]["status"] = "planned"
    with pytest.raises(ValueError, match="is not in the ledger"):
        signed(content).verify()


def test_the_reference_without_privacy_says_so():
    card = make_card(epsilon=math.inf)
    assert card["private"] is False
    assert card["fit"]["epsilon"] == "inf"
    assert card.verify()["fit"]["epsilon"] == math.inf
    content = json.loads(card.to_json())
    content["private"] = True
    with pytest.raises(ValueError, match="says that the fit is private"):
        signed(content).verify()


def test_seeded_noise_is_stated_and_still_verifies():
    card = make_card(private=False)
    assert card["private"] is False
    assert card.verify()["private"] is False


def test_pld_above_rdp_is_caught(monkeypatch):
    card = make_card()
    monkeypatch.setattr(module, "epsilon_rdp", lambda *args: 0.5)
    content = json.loads(card.to_json())
    content["fit"]["epsilon_rdp"] = 0.5
    with pytest.raises(ValueError, match="is above that by RDP"):
        signed(content).verify()


def test_a_card_of_a_detached_accountant_still_prints_the_price():
    card = make_card(later=True)
    events = card["fit"]["charges"][0]["event"]["events"]
    assert [event["type"] for event in events] == ["gaussian", "poisson_gaussian"]
    assert card["sampler"][1].startswith("poisson")
    assert set(card["versions"]) == {"python", "skdpgen", "numpy", "scipy", "dp-accounting"}
    assert card["ledger"]["epsilon_if_fixed_in_advance"] >= card["fit"]["epsilon"]
    assert epsilon_pld([], 1e-5, "replace_one") == 0.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a privacy card"),
        ("[1]", "expected a JSON object"),
        ("{}", "missing fields"),
    ],
)
def test_what_is_no_card_is_refused(text, message, tmp_path):
    (tmp_path / "card.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        PrivacyCard.load(tmp_path / "card.json")


def test_files_that_cannot_be_read_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError):
        PrivacyCard.load(tmp_path / "none.json")
    (tmp_path / "card.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="not UTF-8"):
        PrivacyCard.load(tmp_path / "card.json")
    content = json.loads(make_card().to_json())
    for name, bad in (("fit", []), ("ledger", None), ("extra", 1)):
        with pytest.raises(ValueError, match=r"expected a JSON object|unknown fields"):
            PrivacyCard({**content, name: bad})


@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
@pytest.mark.parametrize("labelled", [False, True])
def test_rows_declared_public_are_told_by_shape_and_never_by_value(labelled):
    public = np.full((30, 2), 0.4711)
    public[::2] = -0.4711
    options = {"score_bounds": None, "runs": "logarithmic", "mean_runs": 1}
    data = (public, np.arange(30)) if labelled else public
    search = PrivateSearchCV(
        DPPCA(bounds=(-1, 1), l2_bound=1.0), {"n_components": [1, 2]}, public_data=data, **options
    ).fit(np.zeros((50, 2)))
    text = search.card_.to_json()
    assert "4711" not in text
    assert "<ndarray of shape (30, 2)>" in text
    assert search.card_.verify()["private"] in (True, False)


@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
def test_large_arrays_among_the_parameters_are_told_by_shape():
    bounds = np.tile([-4711.0, 4711.0], (520, 1))
    card = DPPCA(1, bounds=bounds, l2_bound=1.0).fit(np.zeros((20, 520))).card_
    assert card["model"]["parameters"]["bounds"] == "<ndarray of shape (520, 2)>"
    few = DPPCA(1, bounds=bounds[:2], l2_bound=1.0).fit(np.zeros((20, 2))).card_
    assert few["model"]["parameters"]["bounds"] == [[-4711.0, 4711.0]] * 2


def test_the_sampler_of_a_public_schedule_does_not_say_that_all_take_part_in_all():
    accountant = PrivacyAccountant(1.0)
    schedule = SubsetPlan(20, 50, 1.0, per_step=2, sampler="balanced")
    plan = accountant.calibrate([schedule.phase("decoder", 1.0)], label="fit")
    accountant.charge(plan.event, plan.label)
    card = PrivacyCard.build(plan, accountant, model="DP2VAESynthesizer", parameters={}, noise="secure")
    assert card["sampler"] == [
        "none: no draw is hidden; each Gaussian release charged counts as one in which every unit takes part"
    ]
    assert card["fit"]["charges"][0]["event"]["count"] == 5  # of 50 steps, those that come to a given subset
    card.verify()


def test_a_card_is_read_as_a_mapping():
    card = make_card()
    assert list(card) == list(card.keys()) == list(json.loads(card.to_json()))
    assert dict(card) == {name: card[name] for name in card}
    assert len(card) == len(dict(card))
    assert "fit" in card
    assert 0 not in card
    for absent in ("epsilon", 0):
        with pytest.raises(KeyError, match=r"has no field .*: this one has .*ledger"):
            card[absent]


# ---- in a notebook -------------------------------------------------------------------------------
def cells(page):
    """Rows of the table of a page."""
    header, *rows = (re.findall("<t[hd]>(.*?)</t[hd]>", row) for row in re.findall("(?s)<tr.*?</tr>", page))
    return [dict(zip(header, row)) for row in rows]


def test_a_notebook_shows_the_guarantee_the_releases_and_what_is_public():
    card = make_card(later=True)
    page = card._repr_html_()
    assert "Privacy card</b> of P3GMSynthesizer" in page
    assert "&epsilon; = 0.9996 at &delta; = 1e-05, for one row (add_or_remove_one)" in page
    assert "<li>bounds of column age</li>" in page
    assert "<li>classes: declared public by the caller</li>" in page
    table = cells(page)
    assert [row["mechanism"] for row in table] == ["gaussian", "poisson_gaussian"]
    assert [row["count"] for row in table] == ["1", "20"]
    shares = [float(row["share of the fit"]) for row in table]
    assert sum(shares) == pytest.approx(1, abs=1e-3)  # the later fit is no part of it
    assert repr(card) == "PrivacyCard(P3GMSynthesizer, epsilon=0.9996, delta=1e-05)"


def test_a_notebook_shows_names_of_releases_and_a_unit():
    X = np.random.default_rng(0).normal(size=(60, 2))
    fitted = DPPCA(1, epsilon=1e3, centering="two_round", bounds=(-3, 3), l2_bound=1.0).fit(X)
    (charge,) = fitted.card_.charges
    names = [row["release"] for row in cells(fitted.card_._repr_html_())]
    assert names == charge.label.split(": ")[1].split(", ")
    unit = BoundedUnit("patient", 4)
    card = PrivacyCard({**json.loads(make_card().to_json()), "unit": str(unit)})
    assert "for all rows of one patient, at most 4 of them used" in card._repr_html_()


def test_a_notebook_says_that_a_card_is_not_private_and_what_a_large_epsilon_means():
    content = json.loads(make_card().to_json())
    assert "<b>not private</b>" in PrivacyCard({**content, "private": False})._repr_html_()
    assert "NOT PRIVATE" in PrivacyCard({**content, "private": False})._repr_html_()
    assert "protects hardly anybody" in make_card(epsilon=20.0)._repr_html_()


def test_a_notebook_shows_the_beginning_of_a_long_list_of_public_facts():
    page = make_card().with_assumptions(*(f"fact {k}" for k in range(500)))._repr_html_()
    assert "fact 10" in page
    assert "fact 400" not in page
    assert "more, which the card lists" in page
