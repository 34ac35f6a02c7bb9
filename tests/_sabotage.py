"""What the sabotage suite is made of: claims, patched sources, and an audit of releases."""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import os
import sys
import textwrap
import types
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from _rewriting import names, rewrite

import skdpgen.nn
import skdpgen.nn._critics  # imported by fits alone, as the next
import skdpgen.nn._dp2vae_training
import skdpgen.synthesizers  # noqa: F401  every module is loaded, so that none is missed below
from skdpgen._types import unit_of
from skdpgen.accounting import PrivacyAccountant, describe_event
from skdpgen.dpsgd import GradientNoise, PoissonLoader, poisson_batches
from skdpgen.dpsgd._subsets import subset_draws
from skdpgen.exceptions import BudgetExceededError
from skdpgen.mechanisms import add_gaussian, noise_of_mean, select_above

__all__ = [
    "LEARNED", "Audit", "Claim", "after", "assert_caught", "before", "mutant_ids", "patch_source", "quietly",
]  # fmt: skip

# What fits of generators begin with, as a pattern.
LEARNED = "$codec, $x, $classes, $n_levels, $row_count, $weights, $step_size = learn_rows($1, $fit)"
_TESTS = Path(__file__).parent


# the test functions of other rooms are the claims that sabotage must break
_ROOMS = (
    "accounting", "data", "decomposition", "dpsgd", "generators", "mechanisms", "metrics", "nn", "report",
    "synthesizers", "tabular",
)  # fmt: skip
sys.path.extend(str(_TESTS / room) for room in _ROOMS)


# ---- sabotage --------------------------------------------------------------------------------------------
def patch_source(monkeypatch, function, *edits):
    """Change the source of a shipped function in place, wherever it was imported by name.

    Parameters
    ----------
    monkeypatch : pytest.MonkeyPatch
    function : function, method or property
    *edits : (old, new)
        Patterns as of `rewrite`, without names of local variables. Each `old` must match once: sabotage that no longer
        applies fails instead of passing for caught.
    """
    function = inspect.unwrap(getattr(function, "fget", None) or function)
    tree = _edited(function, edits)
    tree.body[0].decorator_list = []
    if "__class__" in function.__code__.co_freevars:  # super() needs a class around it
        around = ast.parse("class Around: pass")
        around.body[0].body, tree = tree.body, around
    ast.fix_missing_locations(tree)
    code = compile(tree, "<sabotage>", "exec")
    monkeypatch.setattr(function, "__code__", _find(code, function.__name__))


def before(pattern, statements):
    """The edit that puts statements before those that match a pattern."""
    return pattern, f"{statements}\n{pattern}"


def after(pattern, statements):
    """The edit that puts statements after those that match a pattern."""
    return pattern, f"{pattern}\n{statements}"


def _edited(function, edits):
    """The syntax tree of a function after its edits."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    own = _local_names(function.__code__)
    for old, new in edits:
        fixed = sorted((names(old) | names(new)) & own)
        assert not fixed, f"{function.__qualname__}: {old!r} names a local variable, {fixed[0]}: use a hole"
        tree = rewrite(tree, old, new, function.__qualname__)
    return tree


def _local_names(code):
    """The parameters and local variables of a function, and of those within it, but for self and cls."""
    found = {*code.co_varnames, *code.co_cellvars, *code.co_freevars}
    found = found.union(*(_local_names(inner) for inner in code.co_consts if isinstance(inner, types.CodeType)))
    return found - {"self", "cls", "__class__"}


def _find(code, name):
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            if constant.co_name == name:
                return constant
            if constant.co_name == "Around":
                return _find(constant, name)
    raise AssertionError(f"no code of {name}")


class Claim:
    """A claim-checking function with its arguments: an ordinary test's, or one of `_fits`.

    Parameters
    ----------
    function : callable
        Raises AssertionError (or pytest's Failed) if the claim does not hold. Parameters named rng and X are given as
        the fixtures of the ordinary tests give them.
    *arguments : hashable
    """

    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __str__(self):
        return " ".join([self.function.__name__.removeprefix("test_"), *map(str, self.arguments)])

    def check(self):
        """Raise if the claim does not hold."""
        fixtures = {"rng": lambda: np.random.default_rng(20240917), "X": lambda: _records()}
        parameters = list(inspect.signature(self.function).parameters)
        self.function(*(fixtures[name]() for name in parameters if name in fixtures), *self.arguments)

    def holds_unpatched(self):
        """Check the shipped code, once for all that ask, unless a test of this run does."""
        if not _is_test_of_this_run(self.function, self.arguments):
            _check_once(self.function, self.arguments)


# Parameters of a claim that fixtures of the ordinary tests give, and fixtures that change nothing else.
_GIVEN = ("rng", "X")
_NEUTRAL = {*_GIVEN, "repeatable_noise", "request"}
_tests_of_this_run = set()


def note_tests(items):
    """Note which claims are checked on the shipped code by the tests that were collected, with the same arguments."""
    for item in items:
        function, case = getattr(item, "function", None), getattr(item, "callspec", None)
        if function is None or item.cls is not None or any(map(item.get_closest_marker, ("skip", "skipif", "xfail"))):
            continue
        given = {} if case is None else case.params
        names = [name for name in inspect.signature(function).parameters if name not in _GIVEN]
        # another fixture, such as shorter fits, makes another claim
        if set(names) != set(given) or not set(item.fixturenames) <= _NEUTRAL | set(given):
            continue
        with contextlib.suppress(TypeError):  # an argument without a hash
            _tests_of_this_run.add((function, tuple(given[name] for name in names)))


def _is_test_of_this_run(function, arguments):
    return (function, arguments) in _tests_of_this_run


@functools.cache
def _check_once(function, arguments):
    Claim(function, *arguments).check()


def _records():
    return np.random.default_rng(20240917).standard_normal((60, 4)).astype(np.float32)


def mutant_ids(mutants):
    """Name each mutant by its sabotage and the first claim that catches it."""
    return [f"{name} -> {claims[0].function.__name__.removeprefix('test_')}" for name, claims, *_ in mutants]


def assert_caught(monkeypatch, claims, *changes):
    """Assert that each claim holds on the shipped code, and fails once it is changed.

    With SKDPGEN_ONLY_PATTERNS=1 in the environment only the changes are made, after a change of the code: seconds, in
    place of minutes.
    """
    claims = () if os.environ.get("SKDPGEN_ONLY_PATTERNS") == "1" else claims
    for claim in claims:
        claim.holds_unpatched()
    for function, *edits in changes:
        patch_source(monkeypatch, function, *edits)
    for claim in claims:
        try:
            claim.check()
        except (AssertionError, pytest.fail.Exception):
            continue
        raise AssertionError(f"not caught: {claim}")


# ---- audit of releases -----------------------------------------------------------------------------------
class Audit:
    """Watch a fit: what was charged, what was released, in which order; a context manager.

    Parameters
    ----------
    change : callable, default=None
        Maps each released sum to what the fit goes on with in its place.

    Attributes
    ----------
    log : list of (kind, ...)
        ("charge", event, extra_delta), ("release", noise_multiplier), ("step", noise_multiplier, sampling_rate),
        ("threshold", delta, whether it is for the noise of the last release with names, number of releases before it).
    plans : list of DPSGDPlan
    subset_plans : list of SubsetPlan
    relations : set of str
        Under which noise was scaled.
    """

    def __init__(self, change=None):
        self._change = change
        self.log, self.plans, self.subset_plans, self.relations = [], [], [], set()
        self._last_sd, self._last_value, self._last_has_names = None, None, False
        self._rate = None

    def __enter__(self):
        self._patch = pytest.MonkeyPatch()
        everywhere(self._patch, add_gaussian, self._add_gaussian)
        everywhere(self._patch, select_above, self._select_above)
        everywhere(self._patch, poisson_batches, self._poisson_batches)
        everywhere(self._patch, subset_draws, self._subset_draws)
        audit, charge, release, start = self, PrivacyAccountant.charge, GradientNoise.release, PoissonLoader.__init__

        def charged(accountant, event, label, extra_delta=0.0, *, private=True, unit=None):
            receipt = charge(accountant, event, label, extra_delta, private=private, unit=unit)
            audit.log.append(("charge", event, extra_delta))
            return receipt

        def released(noise, bounded, divisor=1.0, out=None):
            if audit.subset_plans:  # the unit is a subset, and a plan says what the noise is a multiple of
                plan = audit.subset_plans[-1]
                assert (divisor, bounded.add_or_remove_one) == (plan.per_step, plan.l2_bound)
                rate = None if plan.mechanism == "gaussian" else plan.sampling_rate  # all subsets in every step
                audit.log.append(("step", noise.noise_multiplier, rate))
                return release(noise, bounded, divisor, out)
            plan = audit.plans[-1]
            assert divisor == plan.expected_batch_size, "the denominator is not the expected batch size of the plan"
            assert bounded.add_or_remove_one == plan.l2_bound
            audit.log.append(("step", noise.noise_multiplier, audit._rate))
            return release(noise, bounded, divisor, out)

        def started(loader, dataset, *, plan, **options):
            audit.plans.append(plan)
            start(loader, dataset, plan=plan, **options)

        self._patch.setattr(PrivacyAccountant, "charge", charged)
        self._patch.setattr(GradientNoise, "release", released)
        self._patch.setattr(PoissonLoader, "__init__", started)
        return self

    def __exit__(self, *_):
        self._patch.undo()

    def _add_gaussian(self, query, noise_multiplier, rng, neighboring):
        self.log.append(("release", noise_multiplier))
        self.relations.add(neighboring)
        sd = noise_multiplier * query.sensitivity(neighboring)
        # a threshold is for the last release that has names; counts of numbers may come between
        if query.keys or not self._last_has_names:
            # a query that is released once more: then it is for the average of both
            again = query.value is self._last_value and query.keys
            self._last_sd = noise_of_mean((self._last_sd, sd)) if again else sd
            self._last_value, self._last_has_names = query.value, bool(query.keys)
        noisy = add_gaussian(query, noise_multiplier, rng, neighboring)
        return noisy if self._change is None else self._change(noisy)

    def _select_above(self, noisy_counts, sd, delta, n_columns=1, unit=None):
        releases = sum(entry[0] == "release" for entry in self.log)
        self.log.append(("threshold", delta, sd == self._last_sd, releases))
        return select_above(noisy_counts, sd, delta, n_columns, unit)

    def _subset_draws(self, plan, rng):
        self.subset_plans.append(plan)
        return subset_draws(plan, rng)

    def _poisson_batches(self, n_records, sampling_rate, steps, rng):
        self._rate = sampling_rate
        return poisson_batches(n_records, sampling_rate, steps, rng)

    def check(self, accountant):
        """Assert that all that ran was charged before it ran, and that all that was charged ran: to the last bit."""
        kinds = [entry[0] for entry in self.log]
        assert kinds.count("charge") == 1, "not exactly one charge"
        assert kinds[0] == "charge", "a release came before the charge"
        _, event, extra_delta = self.log[0]
        ran = [
            (entry[1], None if entry[0] == "release" else entry[2])
            for entry in self.log
            if entry[0] in ("release", "step")
        ]
        paid = [
            (row["noise_multiplier"], row["sampling_rate"])
            for row in describe_event(event)
            for _ in range(row["count"])
        ]
        assert _as_charged(ran, paid), "what was released is not what was charged"
        thresholds = [entry[1:] for entry in self.log if entry[0] == "threshold"]
        deltas = {(place, delta) for delta, _, place in thresholds}
        assert len(deltas) == len({place for place, _ in deltas}), "thresholds of one release have several deltas"
        spent = sum(delta for _, delta in deltas)
        # half is for a second look and a third count, which may not take place
        shares = (1, 0.75, 0.5) if extra_delta else (0,)
        assert any(spent == pytest.approx(share * extra_delta, rel=1e-12) for share in shares), (
            "thresholds spend another delta"
        )
        assert all(of_release for _, of_release, _ in thresholds), "a threshold is for other noise than was drawn"
        assert {_relation(found) for found in self.relations} <= {(accountant.neighboring, accountant.unit)}, (
            "noise was scaled for another relation"
        )
        # a plan without noise is that of the check of a net on made-up rows, before the charge
        assert all(plan.neighboring == accountant.neighboring for plan in self.plans if plan.private)
        books = [(charge.event, charge.extra_delta) for charge in accountant.charges]
        assert books == [(event, extra_delta)], "the books do not hold what was charged"


def _relation(found):
    """The relation that noise was scaled for, and the name of its unit; None for a row."""
    unit = unit_of(found)
    return (found, None) if unit is None else (found.neighboring, unit.name)


def _as_charged(ran, paid):
    """Whether each charge is for one release of its noise, or one for two that cost as much together."""
    more, fewer = list((Counter(ran) - Counter(paid)).elements()), list((Counter(paid) - Counter(ran)).elements())
    if not more and not fewer:
        return True
    if (len(more), len(fewer)) != (2, 1) or any(rate is not None or not noise for noise, rate in (*more, *fewer)):
        return False
    spent, charged = (sum(noise**-2 for noise, _ in part) for part in (more, fewer))
    return (1 - 1e-9) * charged < spent <= charged


def everywhere(monkeypatch, function, replacement):
    """Replace a function in every module of the package that has it by any name."""
    modules = [module for name, module in list(sys.modules.items()) if name.split(".")[0] == "skdpgen"]
    for module in modules:
        for name, value in list(vars(module).items()):
            if value is function:
                monkeypatch.setattr(module, name, replacement)


def quietly(fit):
    """Run a fit without its warnings about utility; a fit that its own guards refuse fails the claim too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return fit()
        except BudgetExceededError:
            raise
        except (ValueError, KeyError, RuntimeError) as error:
            raise AssertionError(f"refused by a guard of the fit itself: {error}") from error
