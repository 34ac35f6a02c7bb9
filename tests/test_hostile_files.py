"""Files from anybody: cards, schemas, models and results that were made to mislead, or to stop the machine."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from _command_line import refused
from _watchdog import ends

import skdpgen
from skdpgen import MomentSynthesizer, Schema
from skdpgen.__main__ import main
from skdpgen.accounting import (
    PrivacyAccountant,
    PrivacyCard,
    epsilon_pld,
    epsilon_rdp,
    gaussian_event,
    poisson_gaussian_event,
    repeat_and_select_event,
    subset_gaussian_event,
)
from skdpgen.accounting._card import digest
from skdpgen.exceptions import SchemaError
from skdpgen.tabular import Categorical, Datetime, Numeric
from skdpgen.tabular._constraints import RowConstraint

DATA = Path(__file__).parent / "data"
CARDS = sorted(DATA.glob("*.card.json"))
CARD = json.loads((DATA / "several-add_or_remove_one.card.json").read_text())
BOTH = ("add_or_remove_one", "replace_one")


def forged(**fields):
    """A card with fields changed and a digest that fits, as anybody can write it."""
    content = {**copy.deepcopy(CARD), **fields}
    body = {name: value for name, value in content.items() if name != "digest"}
    return {**body, "digest": digest(body)}


def save(content, name="card.json"):
    Path(name).write_text(content if isinstance(content, str) else json.dumps(content))
    return name


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


# ---- cards --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("path", CARDS, ids=lambda path: path.name)
def test_cards_of_earlier_versions_verify(path, capsys):
    assert main(["verify", str(path)]) == 0
    assert "bounded" not in capsys.readouterr().out


def test_a_key_that_occurs_twice_is_refused(capsys):
    text = json.dumps(CARD)
    for old, new in (('"epsilon":', '"epsilon": 0.01, "epsilon":'), ('"unit":', '"unit": "all", "unit":')):
        assert "occurs twice" in refused(capsys, "verify", save(text.replace(old, new, 1)))


@pytest.mark.parametrize(
    "fields",
    [
        {"private": "certainly"},
        {"private": 1},
        {"model": None},
        {"model": {"name": "x"}},
        {"model": {"name": ["x"], "parameters": {}}},
        {"model": {"name": "x", "parameters": {}, "extra": 1}},
        {"public_assumptions": 5},
        {"public_assumptions": [5]},
        {"unit": {}},
        {"noise": None},
        {"neighboring": []},
        {"versions": []},
        {"versions": {"numpy": 2}},
        {"sampler": "poisson"},
        {"fit": {**CARD["fit"], "charges": {}}},
        {"fit": {**CARD["fit"], "label": 3}},
        {"fit": {**CARD["fit"], "delta": "1e-5"}},
        {"fit": {**CARD["fit"], "delta": True}},
        {"fit": {**CARD["fit"], "extra": 1}},
        {"ledger": {**CARD["ledger"], "delta_reserve": "0.2"}},
        {"ledger": {**CARD["ledger"], "budget_epsilon": [3]}},
        {"ledger": {**CARD["ledger"], "charges": [{**CARD["ledger"]["charges"][0], "batch": 1.0}]}},
        {"ledger": {**CARD["ledger"], "charges": [{**CARD["ledger"]["charges"][0], "extra": 1}]}},
        {"ledger": {**CARD["ledger"], "charges": [{**CARD["ledger"]["charges"][0], "status": []}]}},
    ],
    ids=str,
)
def test_fields_of_another_kind_are_refused_and_never_raise_elsewhere(fields, capsys):
    refused(capsys, "verify", save(forged(**fields)))


def test_epsilon_may_be_stated_a_little_above_and_never_below():
    for trail in (("fit", "epsilon"), ("fit", "epsilon_rdp"), ("ledger", "epsilon_spent")):
        for factor, good in ((1 + 4e-4, True), (1 - 4e-4, False), (1 - 1e-5, False), (1 + 1e-2, False)):
            part = copy.deepcopy(CARD[trail[0]])
            part[trail[1]] *= factor
            card = PrivacyCard(forged(**{trail[0]: part}))
            if good:
                card.verify()
            else:
                with pytest.raises(ValueError, match="is stated as"):
                    card.verify()


def test_no_field_of_a_card_can_print_a_line_of_its_own(capsys):
    attack = "x\n  private  yes\r\x1b[2J\x1b[1;1H\u202e\u2066\x9b2K"
    model = {"name": attack, "parameters": {}}
    fields = {"model": model, "unit": attack, "noise": attack, "public_assumptions": [attack, "y" * 10**6]}
    assert main(["verify", save(forged(**fields, private=False))]) == 1
    out = capsys.readouterr().out
    assert all(c == "\n" or c.isprintable() for c in out)
    assert len(out) < 10_000
    lines = out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == [
        *("private", "fit", "ledger", "rule", "model", "unit", "noise", "public", "public", "note")
    ]
    assert lines[1].startswith("  private  NO")


def test_a_card_that_is_not_private_exits_with_1(capsys):
    assert main(["verify", save(forged(private=False))]) == 1
    assert "NO" in capsys.readouterr().out


def test_labels_of_a_card_show_escaped_on_a_page_and_in_tables():
    from skdpgen.report._page import paragraph

    assert paragraph("a\x1b[2J\u202e<b>") == "<p>a\\u001b[2J\\u202e&lt;b&gt;</p>"
    accountant = PrivacyAccountant(3.0)
    accountant.charge(gaussian_event(10.0), "fit\x1b[2J")
    assert accountant.report()["label"][0] == "fit\\u001b[2J"
    assert "\x1b" not in accountant._repr_html_()


def test_a_card_in_a_notebook_has_no_markup_of_its_own_and_never_raises():
    attack = "<script>x</script>\n\x1b[2J\u202e"
    model = {"name": attack, "parameters": {}}
    charge = {**CARD["fit"]["charges"][0], "label": attack}
    fields = {"model": model, "unit": attack, "public_assumptions": [attack, "y" * 10**6], "noise": "<b>rows"}
    for more in (
        {},
        {"neighboring": attack},
        {"fit": {**CARD["fit"], "charges": [charge]}},
        {"fit": {**CARD["fit"], "charges": [{"<b>": 1}]}},
        {"fit": {**CARD["fit"], "charges": []}},
        {"fit": {**CARD["fit"], "epsilon": attack, "charges": [{**charge, "event": [_gaussian(1e-200)]}]}},
        {"fit": {**CARD["fit"], "epsilon": None}},
        {"ledger": {**CARD["ledger"], "alpha": attack}},
    ):
        page = PrivacyCard(forged(**fields, **more))._repr_html_()
        assert "<script" not in page
        assert "<b>rows" not in page
        assert all(c == "\n" or c.isprintable() for c in page)
        assert len(page) < 40_000


def test_a_card_with_too_much_work_shows_in_a_notebook_and_ends():
    charges = [{"label": "fit", "event": event, "extra_delta": 0.0} for event in hostile_ledgers()["grids"]]
    with ends():
        page = PrivacyCard(forged(fit={**CARD["fit"], "charges": charges}))._repr_html_()
    assert "The releases cannot be shown" in page


def _gaussian(noise):
    return {"type": "gaussian", "noise_multiplier": noise, "count": 1}


def _steps(rate, noise, steps):
    return {"type": "poisson_gaussian", "sampling_rate": rate, "noise_multiplier": noise, "steps": steps}


def hostile_ledgers():
    """Events that would take minutes, or gigabytes, one by one or together."""
    many = [poisson_gaussian_event(0.01, 1 + k / 1000, 1000) for k in range(6_000)]
    return {
        "steps": [{"type": "poisson_gaussian", "sampling_rate": 0.5, "noise_multiplier": 100.0, "steps": 10**8}],
        "more steps": [{"type": "poisson_gaussian", "sampling_rate": 0.5, "noise_multiplier": 1.0, "steps": 10**15}],
        "kinds": [
            {
                "type": "poisson_gaussian",
                "sampling_rate": event.event.sampling_probability,
                "noise_multiplier": event.event.event.noise_multiplier,
                "steps": 1000,
            }
            for event in many
        ],
        "alternatives": [
            {
                "type": "repeat_and_select",
                "runs": "poisson",
                "mean": 5.0,
                "count": 1,
                "one_of": [{"type": "gaussian", "noise_multiplier": 1.0 + k, "count": 1} for k in range(2_000)],
            }
        ],
        "grids": [_steps(0.1 * (1 + k % 9), 1.0 + k / 7, 15_600) for k in range(64)],
        "steps beside a search": [
            {"type": "repeat_and_select", "runs": "poisson", "mean": 5.0, "count": 1, "one_of": [_gaussian(5.0)]},
            *(_steps(0.01, 0.07 + k * 1e-6, 10) for k in range(100)),
        ],
        "next to no noise": [{"type": "gaussian", "noise_multiplier": 1e-200, "count": 1}],
    }


@pytest.mark.parametrize(
    "name",
    [
        "steps", "more steps", "kinds", "alternatives", "grids", "steps beside a search", "next to no noise",
    ],
)  # fmt: skip
def test_a_hostile_ledger_is_refused_and_ends(name, capsys):
    events = hostile_ledgers()[name]
    charges = [{"label": "fit", "event": event, "extra_delta": 0.0} for event in events]
    fit = {**CARD["fit"], "label": "fit", "charges": charges[:1]}
    ledger = {**CARD["ledger"], "charges": [{**c, "batch": 1, "status": "charged"} for c in charges]}
    with ends():
        refused(capsys, "verify", save(forged(fit=fit, ledger=ledger)))


def test_a_price_that_is_bounded_is_above_the_exact_one_and_said(capsys):
    from skdpgen.accounting._pricing import why_bounded

    small, large = (poisson_gaussian_event(0.001, 2.0, n) for n in (300_000, 1_000_001))
    assert why_bounded(small, BOTH[1]) is None
    assert "upper bound" in why_bounded(large, BOTH[1])
    exact, bound = (epsilon_pld(event, 1e-5, BOTH[0]) for event in (small, large))
    assert exact < bound < 3 * exact
    accountant = PrivacyAccountant(np.inf)
    accountant.charge(large, "fit")
    ledger = {
        **CARD["ledger"],
        "budget_epsilon": "inf",
        "alpha": None,
        "epsilon_spent": accountant.epsilon_spent(),
        "epsilon_if_fixed_in_advance": accountant.epsilon_spent(),
        "rule": "no limit: privacy loss distribution as if all had been fixed in advance",
    }
    event = {"type": "poisson_gaussian", "sampling_rate": 0.001, "noise_multiplier": 2.0, "steps": 1_000_001}
    charge = {"label": "fit", "event": event, "extra_delta": 0.0}
    ledger["charges"] = [{**charge, "batch": 1, "status": "charged"}]
    epsilon = epsilon_pld(large, 1e-5, BOTH[0])
    fit = {"label": "fit", "epsilon": epsilon, "epsilon_asked": "inf", "epsilon_rdp": epsilon, "delta": 1e-5}
    sampler = ["poisson: every unit takes part in a step independently, with probability sampling_rate"]
    card = forged(fit={**fit, "charges": [charge]}, ledger=ledger, sampler=sampler)
    assert main(["verify", save(card)]) == 0
    assert "upper bound by Renyi differential privacy" in capsys.readouterr().out


@pytest.mark.parametrize(
    "make",
    [
        lambda: gaussian_event(1e-200),
        lambda: gaussian_event(1e30),
        lambda: gaussian_event(10**400),
        lambda: gaussian_event(1.0, 10**13),
        lambda: poisson_gaussian_event(1e-320, 1.0, 10),
        lambda: poisson_gaussian_event(0.1, 1e-200, 10),
        lambda: poisson_gaussian_event(0.1, 1.0, 10**15),
        lambda: subset_gaussian_event("index_revealed", 1e-20, 1.0, 10),
        lambda: repeat_and_select_event([gaussian_event(1.0)], "logarithmic", 1e300),
        lambda: repeat_and_select_event([gaussian_event(1.0 + k) for k in range(1_001)], "poisson", 2),
    ],
)
def test_events_out_of_range_are_refused_when_they_are_made(make):
    with pytest.raises(ValueError, match=r"must|at most"):
        make()


@pytest.mark.parametrize("relation", BOTH)
@pytest.mark.parametrize("noise", [1e-12, 1e18])
@pytest.mark.parametrize("steps", [1, 10**12])
def test_the_ends_of_all_ranges_are_priced(noise, steps, relation):
    events = [poisson_gaussian_event(0.5, noise, steps), gaussian_event(noise, steps)]
    events += [subset_gaussian_event(kind, 0.5, noise, steps) for kind in ("one_of_k", "index_revealed")]
    with ends():
        for event in events:
            assert epsilon_pld(event, 1e-5, relation) >= 0
            by_rdp = epsilon_rdp(event, 1e-5, relation)
            assert by_rdp is None or by_rdp >= 0


def test_closed_forms_are_never_below_the_integral():
    from skdpgen.accounting._renyi import closed_form_rdp, poisson_rdp

    for q, z in ((0.01, 1.0), (0.5, 100.0), (1e-4, 0.5), (0.3, 0.3)):
        for order in (1.1, 2.0, 2.5, 17.8, 64.0):
            for relation in BOTH:
                bound = closed_form_rdp("poisson_gaussian", q, z, order, relation)
                assert bound >= poisson_rdp(q, z, order, relation) * (1 - 1e-8)
            exact = poisson_rdp(q, z, round(order), BOTH[0]) if order > 1.5 else None
            if exact:
                found = closed_form_rdp("poisson_gaussian", q, z, round(order), BOTH[0])
                assert found == pytest.approx(exact, rel=1e-6)


def test_of_many_alternatives_the_largest_is_found_without_all_integrals(monkeypatch):
    from skdpgen.accounting import _renyi as renyi

    events = [poisson_gaussian_event(0.01, 1 + k / 10, 100) for k in range(30)]
    rows = tuple(renyi_rows(event) for event in events)
    asked = []
    inner = renyi.rdp_at
    monkeypatch.setattr(renyi, "rdp_at", lambda *a: asked.append(a) or inner(*a))
    found = renyi._one_run(rows, 8.0, BOTH[0])
    assert found == pytest.approx(max(inner(row, 8.0, BOTH[0]) for row in rows), rel=1e-8)
    assert len(asked) < 5


def renyi_rows(event):
    from skdpgen.accounting._events import releases

    return releases(event)


# ---- schemas and constraints --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "dtype",
    [
        "datetime64[ns, dateutil/../../../../etc/passwd]",
        "datetime64[ns, /etc/localtime]",
        "datetime64[ns, ../zoneinfo/UTC]",
        "timestamp[us, tz=dateutil/x][pyarrow]",
        "datetime64[ns, posixrules\n]",
        "decimal128(10, -2)[pyarrow]",
        "period[../x]",
        "interval[object, right]",
        "O8",
        "Sparse[int]",
        "interval[int64]",
    ],
)
def test_dtypes_outside_the_list_reach_no_library(dtype, monkeypatch):
    monkeypatch.setattr("skdpgen.tabular._dtypes.pdt.pandas_dtype", lambda name: pytest.fail(f"asked for {name}"))
    for kind in ("datetime", "numeric"):
        with pytest.raises(SchemaError, match="dtype"):
            Schema.from_dict({"columns": [{"name": "a", "kind": kind, "dtype": dtype}]})


def test_dtypes_of_every_kind_are_kept():
    pytest.importorskip("pyarrow")
    for dtype in ("int8", "UInt16", "float32", "Float64", "int64[pyarrow]", "double[pyarrow]", "halffloat[pyarrow]"):
        integer = "int" in dtype.lower()
        column = Numeric("a", (0, 10), integer=integer, dtype=dtype)
        assert Schema.from_json(Schema([column]).to_json())["a"] == column
    for dtype in ("str", "object", "category", "string", "string[python]", "string[pyarrow]", "large_string[pyarrow]"):
        column = Categorical("a", ("x", "y"), dtype=dtype)
        assert Schema.from_json(Schema([column]).to_json())["a"] == column
    for zone in ("UTC", "Europe/Paris", "America/Argentina/Ushuaia", "Etc/GMT+5", "UTC+02:00", "+05:30", "-03:00"):
        for dtype in (f"datetime64[us, {zone}]", f"timestamp[us, tz={zone}][pyarrow]"):
            if dtype.startswith("timestamp") and zone.startswith("UTC+"):
                continue
            column = Datetime("a", ("2000-01-01", "2001-01-01"), dtype=dtype)
            assert Schema.from_json(Schema([column]).to_json())["a"] == column
    frame = pd.DataFrame({"a": pd.to_datetime(["2001-02-03"]).tz_localize("Asia/Tokyo"), "b": pd.array([1], "Int8")})
    assert Schema.from_kinds(frame).names == ("a", "b")


def test_mutated_schemas_are_refused_with_one_line_or_read(capsys):
    columns = [
        {"name": "a", "kind": "numeric", "bounds": [0, 1], "decimals": 2, "missing": False, "dtype": "float64"},
        {"name": "b", "kind": "categorical", "categories": ["x", "y"], "other": "z", "ordered": False},
        {"name": "c", "kind": "datetime", "bounds": ["2000-01-01", "2001-01-01"], "resolution": "D"},
        {"name": "d", "kind": "boolean", "missing": True},
    ]
    odd = [None, True, 0, -1, 1.5, 10**250, "", "x", [], [[]], [1], [None, None], {}, {"a": 1}, ["a"], "int64", 10**18]
    whole = {"format": "skdpgen-schema", "version": 1, "columns": columns}
    for key in whole:
        for value in odd:
            try_schema({**whole, key: value})
    for k, column in enumerate(columns):
        for key in (*column, "unknown"):
            for value in odd:
                changed = copy.deepcopy(whole)
                changed["columns"][k][key] = value
                try_schema(changed)
    assert "unknown fields" in refused(capsys, "budget", "--schema", save({**whole, "extra": 1}))


def try_schema(content):
    try:
        schema = Schema.from_json(json.dumps(content))
    except SchemaError:
        return
    assert Schema.from_json(schema.to_json()) == schema


def test_a_schema_of_too_many_columns_or_names_twice_is_refused_and_ends():
    entries = [{"name": f"c{k}", "kind": "boolean"} for k in range(3_000)]
    with ends():
        assert len(Schema.from_dict({"columns": entries})) == 3_000
        with pytest.raises(SchemaError, match="duplicate"):
            Schema.from_dict({"columns": [*entries, entries[0]]})
        with pytest.raises(SchemaError, match="at most"):
            Schema.from_dict({"columns": [{}] * 100_001})


@pytest.mark.parametrize(
    "text",
    ["'x' * 99999 * 99999 == town", "town * 99999 * 99999 == 'x'", "3 * ('a' * 9) == town", "kind * 2 == 'aa'"],
)
def test_text_is_not_multiplied_in_a_constraint(text):
    frame = pd.DataFrame({"town": ["a", "b"], "kind": pd.Categorical(["a", "b"]), "n": [1, 2]})
    with pytest.raises(ValueError, match="different kinds"):
        RowConstraint(text, list(frame)).holds(frame)
    assert RowConstraint("n * 2 * 3 >= 12", list(frame)).holds(frame).tolist() == [False, True]


@pytest.mark.parametrize(
    "text", ["(" * 5000 + "n" + ")" * 5000, "n < 1e999", "n < " + "9" * 400, "n < 1\x00", "x" * 20_000]
)
def test_constraints_without_end_are_refused(text):
    with pytest.raises(ValueError, match="constraint"):
        RowConstraint(text, ["n"])


# ---- models -------------------------------------------------------------------------------------------------------
def model_with(change, name="m.safetensors"):
    from safetensors.numpy import load, save

    content = (DATA / "moment-arrays.safetensors").read_bytes()
    outer = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    header = json.loads(outer["__metadata__"]["skdpgen"])
    text = change(header) or json.dumps(header)
    Path(name).write_bytes(save(load(content), metadata={"skdpgen": text}))
    return name


def test_a_stated_row_count_takes_no_memory_that_nobody_asked_for(capsys):
    def change(header):
        header["state"]["model"]["row_count"] = 3e8

    path = model_with(change)
    assert "--rows" in refused(capsys, "sample", path, "--output", "out.csv")
    assert main(["sample", path, "--rows", "5", "--output", "out.csv"]) == 0
    for count in (-1, 1e300, "3", None, True):
        with pytest.raises(ValueError, match=r"row count|not a model"):
            skdpgen.load(model_with(lambda header, count=count: header["state"]["model"].update(row_count=count)))


def test_a_header_with_keys_twice_or_unknown_is_refused():
    def twice(header):
        return json.dumps(header).replace('"row_count"', '"row_count": 1, "row_count"', 1)

    for change in (twice, lambda header: header.update(extra=1), lambda header: "[" * 10**5):
        with pytest.raises(ValueError, match="not a model file"):
            skdpgen.load(model_with(change))


def test_arrays_longer_than_the_file_are_refused():
    content = (DATA / "moment-arrays.safetensors").read_bytes()
    for cut in (0, 7, 8, 100, len(content) - 1):
        Path("cut.safetensors").write_bytes(content[:cut])
        with pytest.raises(ValueError, match="not a model file"):
            skdpgen.load("cut.safetensors")
    Path("long.safetensors").write_bytes((2**62).to_bytes(8, "little") + content[8:])
    with pytest.raises(ValueError, match="not a model file"):
        skdpgen.load("long.safetensors")
    with open("sparse.safetensors", "wb") as file:
        file.write(content)
        os.truncate("sparse.safetensors", 2**40)
    with pytest.raises(ValueError, match="longer than"):
        skdpgen.load("sparse.safetensors")


def test_honest_models_of_many_columns_still_load(tmp_path):
    rows = np.random.default_rng(0).random((60, 390))
    fitted = MomentSynthesizer(bounds=(0, 1), n_components=2, epsilon=50.0).fit(rows)
    fitted.save("wide.safetensors")
    assert skdpgen.load("wide.safetensors").sample(3).shape == (3, 390)
