"""Events, and the trip to JSON and back."""

import json
import math
import subprocess
import sys

import dp_accounting
import numpy as np
import pytest

from skdpgen.accounting import (
    Charge,
    FitPlan,
    PrivacyAccountant,
    compose_events,
    describe_event,
    event_from_json,
    event_to_json,
    gaussian_event,
    non_private_event,
    poisson_gaussian_event,
)
from skdpgen.accounting._events import Release, Repetition

EVENTS = [
    gaussian_event(1 / 3),
    gaussian_event(np.float64(2.5), count=np.int64(20)),
    poisson_gaussian_event(300 / 63000, 1.4, 840),
    poisson_gaussian_event(1.0, 0.1, 1),
    non_private_event(),
    compose_events(
        [gaussian_event(3.0), compose_events([poisson_gaussian_event(0.1, 2.0, 7), gaussian_event(5.0, 2)])]
    ),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_json_round_trip_keeps_every_number(event):
    text = json.dumps(event_to_json(event), allow_nan=False)
    assert event_from_json(text) == event
    assert event_from_json(json.loads(text)) == event
    assert describe_event(event_from_json(text)) == describe_event(event)


def test_nested_events_are_flattened_and_counts_multiply():
    inner = dp_accounting.ComposedDpEvent([gaussian_event(2.0, 3), gaussian_event(4.0)])
    rows = describe_event(dp_accounting.SelfComposedDpEvent(inner, 5))
    assert [(row["noise_multiplier"], row["count"]) for row in rows] == [(2.0, 15), (4.0, 5)]


@pytest.mark.parametrize("bad", [0, -1.0, float("nan"), float("inf"), "1", True, None])
def test_noise_multiplier_must_be_positive_and_finite(bad):
    with pytest.raises(ValueError, match="noise_multiplier must be a positive finite number"):
        gaussian_event(bad)
    with pytest.raises(ValueError, match="noise_multiplier must be a positive finite number"):
        poisson_gaussian_event(0.1, bad, 1)


@pytest.mark.parametrize("bad", [0, -3, 2.0, True, None])
def test_count_must_be_a_whole_number(bad):
    with pytest.raises(ValueError, match="whole number"):
        gaussian_event(1.0, bad)
    with pytest.raises(ValueError, match="whole number"):
        poisson_gaussian_event(0.1, 1.0, bad)


@pytest.mark.parametrize("bad", [0, 1.0001, -0.1, float("nan")])
def test_sampling_rate_must_lie_in_the_unit_interval(bad):
    with pytest.raises(ValueError, match="sampling_rate"):
        poisson_gaussian_event(bad, 1.0, 1)


@pytest.mark.parametrize(
    "event",
    [
        dp_accounting.LaplaceDpEvent(1.0),
        dp_accounting.NoOpDpEvent(),
        dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.LaplaceDpEvent(1.0)),
        dp_accounting.GaussianDpEvent(0.0),
        dp_accounting.ComposedDpEvent([]),
        "gaussian",
    ],
)
def test_what_cannot_be_priced_cannot_be_charged(event):
    with pytest.raises(ValueError, match=r"is not known|positive finite|at least one"):
        Charge("x", event)


@pytest.mark.parametrize(
    "rows",
    [
        (),
        ("gaussian",),
        (Release("gaussian", 1.0, None, -5),),  # would give budget back
        (Release("gaussian", 1e30, None, 1),),
        (Release("gaussian", math.nan, None, 1),),
        (Release("gaussian", 1.0, 1e-3, 1),),
        (Release("free", 1.0, None, 1),),
        (Release("poisson_gaussian", 1.0, 1.5, 1),),
        (
            Release(
                "repeat_and_select", None, None, 1, Repetition("poisson", -1.0, ((Release("gaussian", 1, None, 1),),))
            ),
        ),
    ],
)
def test_releases_are_checked_as_events_are(rows):
    accountant = PrivacyAccountant(1.0)
    plan = FitPlan("x", (), {}, rows, 0.0, 1.0, 1e-5, "add_or_remove_one")
    for charge in (lambda: accountant.charge(rows, "x"), lambda: Charge("x", rows), lambda: accountant.plan([plan])):
        with pytest.raises(ValueError, match=r"is not known|whole number|must|at least one"):
            charge()
    assert not accountant.entries


def test_one_release_is_no_list_of_them():
    with pytest.raises(ValueError, match="is not known"):
        Charge("x", Release("gaussian", 1.0, None, 1))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not valid JSON"),
        ("[]", "unknown event type"),
        ("3", "unknown event type"),
        ('{"type": "laplace"}', "unknown event type 'laplace'"),
        ('{"type": "gaussian", "count": 1}', r"missing fields \['noise_multiplier'\]"),
        ('{"type": "gaussian", "noise_multiplier": 1, "count": 1, "q": 1}', r"unknown fields \['q'\]"),
        ('{"type": "gaussian", "noise_multiplier": NaN, "count": 1}', "NaN is not a number of JSON"),
        ('{"type": "gaussian", "noise_multiplier": 1, "count": 1.5}', "whole number"),
        ('{"type": "composed", "events": 3}', "must be a list"),
        ('{"type": "composed", "events": []}', "at least one"),
    ],
)
def test_malformed_event_json_is_refused_with_its_reason(text, message):
    with pytest.raises(ValueError, match=message):
        event_from_json(text)


def test_charge_refuses_bad_label_and_extra_delta():
    for label in ("", "  ", None, 3):
        with pytest.raises(ValueError, match="label"):
            Charge(label, gaussian_event(1.0))
    for extra in (-1e-9, 1.0, float("nan"), "0", True):
        with pytest.raises(ValueError, match="extra_delta"):
            Charge("x", gaussian_event(1.0), extra)


def test_equal_mechanisms_make_equal_charges():
    nested = dp_accounting.ComposedDpEvent([dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(2.0), 3)])
    assert Charge("a", nested) == Charge("a", gaussian_event(2.0, 3))


def test_importing_accounting_does_not_import_torch():
    code = "import sys, skdpgen.accounting; assert 'torch' not in sys.modules and 'pandas' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
