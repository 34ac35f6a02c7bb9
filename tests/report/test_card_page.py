"""The page of a privacy card: plain sentences, true figures, safe for any card, and nothing fetched."""

from __future__ import annotations

import copy
import json
import os
import re
import stat
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from _command_line import refused
from _pages import Page
from scipy.stats import norm

from skdpgen import DPPCA, MomentSynthesizer, P3GMSynthesizer, PrivacyAccountant, PrivacyCard, PrivacyUnit, Schema
from skdpgen.__main__ import main
from skdpgen.accounting import Phase, gaussian_mu, non_private_event
from skdpgen.accounting._card import digest
from skdpgen.report import build_report, card_page, card_text
from skdpgen.tabular import Categorical, Identifier, Numeric
from skdpgen.testing import seeded_noise

pytestmark = pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")

OLD = Path(__file__).parent.parent / "data"
NASTY = "x</p><script>alert(1)</script>\n\x1b[2J\u202e&\"'"
TITLES = [
    *("What was protected", "What the guarantee means", "What was spent", "What was assumed public"),
    *("What may be published, and what not", "How to verify it"),
]


def words(html):
    return " ".join(Page(html).text.split())


def signed(content):
    body = {name: value for name, value in content.items() if name != "digest"}
    return PrivacyCard({**body, "digest": digest(body)})


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.integers(18, 90, 300), "job": rng.choice(["a", "b"], 300), "pay": rng.random(300)})
    schema = Schema([Numeric("age", (17, 90), integer=True), Categorical("job", ("a", "b"))])
    return MomentSynthesizer(1.0, schema=schema, accountant=PrivacyAccountant(3.0)).fit(frame)


def test_the_page_answers_the_questions_of_a_privacy_officer_in_order(fitted):
    html = card_page(fitted.card_)
    page, text = Page(html), words(html)
    assert [text.index(title) for title in TITLES] == sorted(text.index(title) for title in TITLES)
    for said in (
        "This release is differentially private: epsilon 1 at delta 1e-05, for one row.",
        "3 columns were modelled: age, job, pay.",
        "if any one row were added or removed",
        "This ledger saw this fit alone.",
        "bounds 17, 90",
        "categories a, b",
        "bounds learned, and charged",
        "Facts that were learned cost a part of epsilon",
        "Must not be published: the real rows;",
        "Delta is an allowance: any result may be more probable than this bound allows, by at most 1 in 100,000.",
        "A synthetic row may equal a real one by chance",
        "The noise multiplier is the standard deviation of its noise",
        "whole numbers; no value is missing",
        "skdpgen verify card.json",
        fitted.card_["digest"],
        fitted.card_["date"],
    ):
        assert said in text, said
    assert len(page.all("section")) == len(TITLES)


def test_a_learned_number_of_rows_is_not_said_to_be_public():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"home": rng.integers(0, 400, 900).astype(str), "job": rng.choice(["a", "b"], 900)})
    schema = Schema([Categorical("home", dtype="string"), Categorical("job", ("a", "b"))])
    unit = PrivacyUnit("home", columns=["job"])
    text = words(card_page(MomentSynthesizer(3.0, schema=schema, unit=unit).fit(frame).card_))
    assert "columns that are equal in all rows of a unit, declared by the caller: job" in text
    assert "all rows of one home together, called a unit here" in text
    assert re.search(r"as 'home' says \(most rows used of one unit: \d+; this number was learned, and charged\)", text)
    assert "2 columns declared, which the card lists, and of these 1 that the rows do not have" in text


def test_the_card_names_the_columns_of_invented_keys(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"case": range(300), "home": rng.integers(0, 200, 300).astype(str), "pay": rng.random(300)})
    frame["visit"] = frame.groupby("home").cumcount() + 1
    columns = [Identifier("case", pattern="F#######"), Categorical("home"), Numeric("pay", (0, 1))]
    schema = Schema([*columns, Identifier("visit", within_unit=True)])
    card = MomentSynthesizer(3.0, schema=schema, unit=PrivacyUnit("home", max_rows=3)).fit(frame).card_
    assert [column["name"] for column in card["columns"]] == ["case", "pay", "visit"]
    text = words(card_page(card))
    assert "1 column was modelled: pay." in text
    assert "2 columns of the synthetic rows hold invented keys: case, visit. The fit never read the real keys." in text
    assert "where synthetic rows have this column, its values are invented, too" in text
    assert "4 columns declared, which the card lists, and of these 1 that the rows do not have, as that of" in text
    assert "pattern F#######" in text
    assert "numbers of the rows of a unit" in text
    card.save(tmp_path / "card.json")
    assert PrivacyCard.load(tmp_path / "card.json").verify()["private"]


def test_long_lists_of_categories_hide_no_other_fact():
    codes = [f"{letter}{k:02d}" for letter in "AB" for k in range(100)]
    groups = {
        letter: {f"{letter}{k}": [c for c in codes if c[:2] == f"{letter}{k}"] for k in range(10)} for letter in "AB"
    }
    frame = pd.DataFrame({"code": np.repeat(codes, 2), "sick": np.arange(400) % 2 == 0})
    schema = Schema([Categorical("code", codes, hierarchy=groups)])
    text = words(card_page(MomentSynthesizer(3.0, schema=schema).fit(frame).card_))
    assert "200 categories: A00, A01, A02," in text
    assert "A49 and 150 more, which the card lists" in text
    assert "A50" not in text
    assert "2 declared groups: A, B" in text


def test_a_constraint_is_listed_once(fitted):
    frame = pd.DataFrame({"low": np.arange(300) % 7, "high": np.arange(300) % 7 + 1})
    schema = Schema([Numeric("low", (0, 9), integer=True), Numeric("high", (0, 9), integer=True)])
    text = words(card_page(MomentSynthesizer(3.0, schema=schema, constraints=["low <= high"]).fit(frame).card_))
    assert text.count("low <= high") == 1
    assert "constraint, satisfied by construction: low <= high" in text


def test_a_mapping_of_many_values_is_shortened_on_the_page_and_in_the_report():
    towns = np.arange(1_000)
    frame = pd.DataFrame({"town": np.repeat(towns, 2), "state": np.repeat(towns, 2) // 10})
    schema = Schema([Categorical("town", towns.tolist()), Categorical("state", range(100))])
    mapping = f"state == {dict(zip(towns.tolist(), (towns // 10).tolist()))}[town]"
    model = MomentSynthesizer(3.0, schema=schema, constraints=[mapping]).fit(frame)
    stated = next(text for text in model.card_["public_assumptions"] if text.startswith("constraint, "))
    assert len(stated) > 8_000
    report = build_report(frame, model.sample(200), schema=schema, card=model.card_, progress=False)
    for text in (words(card_page(model.card_)), words(report.html)):
        assert stated[:300] in text
        assert f"[{len(stated) - 360:,} more characters, which the card has] ... {stated[-60:].strip()}" in text
        assert " 500: 50," not in text


def test_a_digest_in_a_table_may_be_broken_and_pushes_no_column_off_the_page(fitted):
    digest = fitted.card_["digest"]
    assert digest not in card_page(fitted.card_)
    assert digest in card_page(fitted.card_).replace("<wbr>", "")


def test_the_risk_on_the_page_is_that_of_the_events_on_the_card():
    model = DPPCA(2, epsilon=1.0, bounds=(0, 1), l2_bound=1.0).fit(np.random.default_rng(0).random((400, 3)))
    mu = gaussian_mu(model.card_["fit"]["epsilon"], 1e-5)  # every release of this fit is Gaussian
    advantage, caught = 2 * norm.cdf(mu / 2) - 1, norm.cdf(norm.ppf(0.01) + mu)
    text = card_text(model.card_)
    stated = float(re.search(r"is at\s+most (0\.\d+)\.\)", text)[1])
    assert advantage <= stated <= advantage + 1e-3  # rounded up
    right = float(re.search(r"right in more than\s+([\d.]+)\s+of\s+100", text)[1])
    assert 50 * (1 + advantage) <= right <= 50 * (1 + advantage) + 0.1
    recognised = float(re.search(r"recognises at most\s+([\d.]+)\s+of\s+100", text)[1])
    assert 100 * caught <= recognised <= 100 * caught + 0.1


def test_the_risk_of_the_whole_ledger_is_that_of_all_its_charges():
    """A small fit on a ledger that paid for a large one: what all of it allows, not what the last fit does."""
    books, rows = PrivacyAccountant(9.0), np.random.default_rng(0).random((300, 2))
    for epsilon in (4.0, 0.2):
        model = DPPCA(1, epsilon=epsilon, bounds=(0, 1), l2_bound=1.0, accountant=books).fit(rows)
    mu = sum(release.noise_multiplier**-2 for charge in books.charges for release in charge.releases) ** 0.5
    true = 2 * norm.cdf(mu / 2) - 1, 50 + 100 * (norm.cdf(mu / 2) - 0.5), 100 * norm.cdf(norm.ppf(0.01) + mu)
    text = " ".join(card_text(model.card_).split())
    stated = re.search(
        r"all 2 charges of the ledger: epsilon: [\d.]+; advantage: ([\d.]+); right in 100 decisions: ([\d.]+); "
        r"recognised of 100, with 1 false alarm in 100: ([\d.]+)",
        text,
    )
    for value, bound, step in zip(true, map(float, stated.groups()), (1e-3, 0.1, 0.1)):
        assert value <= bound <= value + step


def test_the_risk_of_all_charges_stands_beside_their_epsilon_and_not_beside_the_value_of_the_filter(tmp_path, capsys):
    books, rows = PrivacyAccountant(5.0, ledger=tmp_path / "a.db"), np.random.default_rng(0).random((300, 2))
    for _ in range(2):
        model = DPPCA(1, epsilon=0.3, bounds=(0, 1), l2_bound=1.0, accountant=books).fit(rows)
    card, totals = model.card_, books.report().attrs
    fixed, spent = totals["epsilon_if_fixed_in_advance"], totals["epsilon_spent"]
    assert fixed < 0.6 < spent
    assert card.verify()["ledger"]["epsilon_if_fixed_in_advance"] == pytest.approx(fixed)
    assert card["ledger"]["epsilon_if_fixed_in_advance"] == pytest.approx(fixed)
    text = " ".join(card_text(card).split())
    assert f"all 2 charges of the ledger: epsilon: {fixed:.4g}; advantage: 0.0" in text
    assert "its share of what was spent: the shares of all releases of the ledger add up to 1, whatever is" in text
    assert f"The value of the privacy filter is epsilon {spent:.4g}, and no guarantee: " in text
    assert f"2 charges, epsilon {spent:.4g} (the value of the privacy filter) of a budget of 5 at" in text
    assert main(["ledger", str(tmp_path / "a.db")]) == 0
    reason = capsys.readouterr().out.partition("value of the privacy filter: ")[2].strip()
    assert reason.startswith("a later fit may have been chosen by earlier results")
    assert f"Fixed in advance, these fits would cost {fixed:.4g}." in reason
    assert reason in text
    assert reason in words(card_page(card))
    page = words(build_report(pd.DataFrame(rows), pd.DataFrame(rows[::-1]), card=card).html)
    assert f"epsilon {spent:.6g} (the value of the privacy filter) of 5 at" in page
    assert f"the same charges, fixed in advance epsilon {fixed:.6g}" in page


def test_a_second_fit_and_the_other_relation_are_stated(fitted):
    books = PrivacyAccountant(4.0, neighboring="replace_one")
    for _ in range(2):
        model = DPPCA(1, epsilon=1.0, bounds=(0, 1), accountant=books).fit(np.random.default_rng(0).random((300, 2)))
    text = words(card_page(model.card_))
    assert "the number of rows is public" in text
    assert "which of two rows was in the data" in text
    assert "all 2 charges of the ledger" in text
    assert "the guarantee is the whole budget: epsilon 4" in text
    assert "saw this fit alone" not in text
    assert "all 2 charges of the ledger: epsilon" in card_text(model.card_)


def test_a_release_without_protection_says_so_first():
    with seeded_noise(0, quiet=True):
        seeded = DPPCA(1, bounds=(0, 1)).fit(np.random.default_rng(0).random((300, 2)))
    books = PrivacyAccountant(np.inf)
    plan = books.calibrate([Phase("look", 1.0)], label="look")
    books.charge(non_private_event(), "look")
    books.charge(plan.event, plan.label)
    bare = PrivacyCard.build(plan, books, model="M", parameters={}, noise="none", private=False)
    for card in (seeded.card_, bare):
        page = card_page(card)
        assert words(page).index("NOT PRIVATE: this release protects nobody.") < 200
        assert "May be published" not in page
        assert "There is no guarantee" in card_text(card)


@pytest.mark.parametrize("path", sorted(OLD.glob("*.card.json")), ids=lambda path: path.name)
def test_cards_of_the_earlier_version_have_a_page(path):
    text = words(card_page(PrivacyCard.load(path)))
    assert "did not list the columns" in text
    assert "states no SHA-256" in text


def test_no_text_of_a_card_becomes_a_tag_or_a_line_or_a_command(fitted):
    content = copy.deepcopy(json.loads(fitted.card_.to_json()))
    content.update(unit=NASTY, noise=NASTY, public_assumptions=[NASTY, "y" * 10**6], versions={NASTY: NASTY})
    content["model"] = {"name": NASTY, "parameters": {}}
    content["columns"] = [{"name": NASTY, "kind": NASTY, NASTY: [NASTY, {"deep": [NASTY]}], "from": NASTY}, NASTY]
    content["declared"] = {NASTY: NASTY, "bounds": {"sha256": NASTY, "count": NASTY}, "schema": {"columns": NASTY}}
    for part in ("fit", "ledger"):
        for charge in content[part]["charges"]:
            charge["label"] = f"{NASTY}: a, b"
    content["fit"]["label"] = f"{NASTY}: a, b"
    card = signed(content)
    html, text = card_page(card), card_text(card)
    assert len(Page(html).all("script")) == 0
    assert "alert(1)" in words(html)
    for shown in (html, text):
        assert all(c == "\n" or c.isprintable() for c in shown)
        assert len(shown) < 100_000
    assert not any(line.startswith("x</p>") for line in text.splitlines())
    names = {attrs.get("id") for _, attrs in Page(html).tags} - {None}
    assert names == {"content", "protected", "meaning", "ledger", "public", "publish", "verify"}


def test_a_card_of_many_columns_and_charges_gives_a_page_of_bounded_length(fitted):
    content = copy.deepcopy(json.loads(fitted.card_.to_json()))
    content["columns"] = [{"name": f"c{k}", "kind": "boolean", "from": "dtype"} for k in range(5_000)]
    text = words(card_page(signed(content)))
    assert "c11 and 4,988 more, which are listed below" in text
    assert "The first 2,000 of 5,000; the card holds all." in text
    assert "c1999" in text
    assert "c2000" not in text


def test_the_card_says_in_words_what_each_release_is(fitted):
    html, text = words(card_page(fitted.card_)), " ".join(card_text(fitted.card_).split())
    names = list(dict.fromkeys(fitted.accountant_.report()["release"]))
    assert {"schema", "bins", "moments"} < set(names)
    for said in (html, text):
        begins = [said.index(f"{name}: ") for name in names]
        assert begins == sorted(begins)
        assert "bins: fine counts of the values of numbers and dates" in said
        assert "would show nothing, the fit measured others of this list again in its place" in said
    rows = np.random.default_rng(0).random((300, 2))
    for array in (P3GMSynthesizer(1.0, bounds=(0, 1)).fit(rows, rows[:, 0] > 0.5), DPPCA(1, bounds=(0, 1)).fit(rows)):
        text = " ".join(card_text(array.card_).split())
        for name in array.accountant_.report()["release"]:
            assert f" - {name}: " in text
        assert "again in its place" not in text


def test_the_printed_card_lists_the_facts_of_each_column(fitted):
    text = " ".join(card_text(fitted.card_).split())
    assert "- age: numeric; bounds 17, 90; " in text
    assert "- job: categorical; categories a, b; " in text
    assert "- pay: numeric; bounds learned, and charged; " in text
    content = copy.deepcopy(json.loads(fitted.card_.to_json()))
    content["columns"] = [{"name": f"c{k}", "kind": "boolean", "from": "dtype"} for k in range(150)]
    text = card_text(signed(content))
    assert "  - c99: boolean (type of the column)\n  and 50 more, on the card and its page\n" in text


def test_the_page_is_accessible_and_fetches_nothing(fitted):
    html = card_page(fitted.card_)
    page = Page(html)
    assert page.all("html")[0]["lang"] == "en"
    assert "default-src 'none'" in html
    assert "://" not in html
    assert not page.all("img")
    assert page.all("main")[0]["id"] == "content"
    assert [attrs["scope"] for attrs in page.all("th")].count("col") > 5
    assert len(page.all("h1")) == 1
    assert page.all("div")[0] == {"class": "banner calm", "role": "note", "aria-label": "Guarantee"}
    assert "@media print" in html


def test_the_command_prints_the_card_and_writes_a_page_for_everyone(fitted, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = tmp_path / "rows.csv"
    fitted.sample(20).to_csv(rows, index=False)
    fitted.card_.with_files(synthetic=rows).save("card.json")
    assert main(["card", "card.json"]) == 0
    printed = capsys.readouterr().out
    assert printed == card_text(PrivacyCard.load("card.json"))
    assert "skdpgen verify card.json --data ROWS" in printed
    before = os.umask(0o077)
    try:
        assert main(["card", "card.json", "--html", "page.html"]) == 0
    finally:
        os.umask(before)
    assert stat.S_IMODE(Path("page.html").stat().st_mode) == 0o644
    assert Path("page.html").read_text(encoding="utf-8") == card_page(PrivacyCard.load("card.json"))
    capsys.readouterr()
    assert "named by two options" in refused(capsys, "card", "card.json", "--html", "card.json")
    changed = json.loads(Path("card.json").read_text())
    Path("bad.json").write_text(json.dumps({**changed, "unit": "nobody"}))
    assert "was changed after it was written" in refused(capsys, "card", "bad.json", "--html", "bad.html")
    assert not Path("bad.html").exists()


def test_a_large_epsilon_is_remarked_in_the_banner():
    model = DPPCA(1, epsilon=20.0, bounds=(0, 1)).fit(np.random.default_rng(0).random((300, 2)))
    page = card_page(model.card_)
    assert "epsilon 20" in words(page)[:600]
    assert (
        len(Page(page).all("p"))
        == len(Page(card_page(DPPCA(1, bounds=(0, 1)).fit(np.zeros((300, 2))).card_)).all("p")) + 1
    )
