"""The reader of JSON from outside, and the text from files that is shown."""

from __future__ import annotations

import json

import pytest

from skdpgen.utils.printing import one_line, plain_number, printable
from skdpgen.utils.strict_json import MOST_DEPTH, read_json, read_json_file


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "'c' occurs twice"),
        ('{"a": NaN}', "NaN is not a number"),
        ("[Infinity]", "Infinity is not a number"),
        ("[1e999]", "too large for a float"),
        ("[" + "9" * 400 + "]", "too large for a float"),
        ("[" * (MOST_DEPTH + 2) + "]" * (MOST_DEPTH + 2), "deep"),
        ("[" * 100_000, "deep|Expecting"),
        ('["\\ud800"]', "no Unicode"),
        ('{"\\udc00": 1}', "no Unicode"),
        ("[" + "[]," * 2_000_001 + "[]]", "lists and objects"),
        (b"\xff", "not UTF-8"),
        ("{", "Expecting"),
    ],
)
def test_what_two_readers_could_understand_differently_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        read_json(text)


def test_ordinary_json_is_read_as_ever(tmp_path):
    value = {"a": [1, 2.5, -0.0, True, None, "\u00e9 \U0001f600"], "b": {"c": {}, "d": 10**200}}
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False)):
        assert read_json(text) == value
    (tmp_path / "a.json").write_text(json.dumps(value))
    assert read_json_file(tmp_path / "a.json") == value
    with pytest.raises(ValueError, match="longer than 10 bytes"):
        read_json_file(tmp_path / "a.json", most_bytes=10)
    with pytest.raises(ValueError, match="longer than 1000 bytes"):
        read_json_file("/dev/zero", most_bytes=1000)


def test_no_text_begins_a_line_or_commands_a_terminal():
    hostile = "a\nb\r\x1b[2J\x9b1A\u202e\u2066\u200b\u2028\x7f\ud800\U000e0041"
    shown = printable(hostile)
    assert shown.isprintable()
    assert shown.isascii()
    assert json.loads(f'"{shown}"') == hostile
    assert printable("Málaga, 東京, наука") == "Málaga, 東京, наука"
    assert one_line("a\n  b") == "a b"
    assert len(one_line("x" * 10**6)) < 2100


def test_numbers_up_to_a_billion_have_no_power_of_ten():
    shown = {
        1283140.2: "1,283,140",
        58634.4: "58,634",
        9999.7: "10,000",
        2021.0: "2021",
        0.80531: "0.8053",
        -2e5: "-200,000",
    }
    assert {value: plain_number(value) for value in shown} == shown
    assert [plain_number(value, 6) for value in (126149.0, 10473.44, 999999.7)] == ["126,149", "10,473.4", "1,000,000"]
    assert [plain_number(value) for value in (2.5e12, float("inf"), 1e-7)] == ["2.5e+12", "inf", "1e-07"]
