"""What every test gets: random data of its own, and noise that is the same in every run of the suite."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import random
import sys
import zlib
from types import SimpleNamespace

# Workers of `pytest -n` share the cores: threads of their own would make them wait for each other. Before numpy, torch.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest
import torch

from skdpgen.utils import noise
from skdpgen.utils.forks import process_identity
from skdpgen.utils.noise import NoiseGenerator, override_noise

# Another number draws other noise for the whole suite: an assertion must hold for any.
SUITE_SEED = int(os.environ.get("SKDPGEN_TEST_SEED", "0"))


def pytest_addoption(parser):
    """Add an option for runs that only look for what other packages lack, such as that of the oldest supported ones."""
    parser.addoption(
        "--most-cases",
        type=int,
        metavar="N",
        help="run at most N cases of a parametrised test, spread at random and the same in every run; all cases of "
        "tests marked every_case",
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Let a worker run tests that follow each other: what a file shares is made once, and not by each worker."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session):
    """Show the sabotage suite, if it was collected, which tests run: it does not check their claims a second time."""
    if "_sabotage" in sys.modules:
        sys.modules["_sabotage"].note_tests(session.items)


@pytest.hookimpl(hookwrapper=True)
def pytest_collection(session):
    """Collect no garbage among what modules and cases of tests make: all of it is used to the end."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(config, items):
    """Leave out cases beyond those of ``--most-cases``."""
    most = config.getoption("--most-cases")
    if most is None:
        return
    cases = {}
    for item in items:
        cases.setdefault(item.nodeid.split("[")[0], []).append(item)
    left_out = set()
    for name, of_function in cases.items():
        if len(of_function) > most and not of_function[0].get_closest_marker("every_case"):
            left_out.update(random.Random(name).sample(of_function, len(of_function) - most))
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]


class RepeatableNoise(NoiseGenerator):
    """A generator that says it is of the kind asked for, on bits that are the same in every run."""

    def __init__(self, kind, seed):
        super().__init__("seeded", seed=seed)
        self.bits_kind, self.kind = self.kind, kind

    def _words(self, n):
        if process_identity() != self._process:
            return super()._words(n)  # refuses
        return self._bits.random_raw(n)


@pytest.fixture
def rng():
    """Random data for a test: never numpy's global generator."""
    return np.random.default_rng(20240917)


@contextlib.contextmanager
def _repeatable(name):
    seed = [SUITE_SEED, zlib.crc32(name.encode())]
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(sum(seed))
    torch.default_generator.manual_seed(sum(seed))  # `torch.manual_seed` also looks for devices, for milliseconds
    default_rng, bits, streams, fits = np.random.default_rng, np.random.PCG64DXSM, itertools.count(), itertools.count()

    def seeded(made):
        return lambda given=None: made([*seed, next(streams)] if given is None else given)

    with pytest.MonkeyPatch.context() as patch, override_noise(lambda kind: RepeatableNoise(kind, [*seed, next(fits)])):
        patch.setattr(np.random, "default_rng", seeded(default_rng))
        # Audits make generators that draw another scale than they state: these take their keys from here too.
        patch.setattr(noise, "os", SimpleNamespace(urandom=default_rng(seed).bytes))
        patch.setattr(np.random, "PCG64DXSM", seeded(bits))
        yield


@pytest.fixture(autouse=True)
def repeatable_noise(request):
    """Seed the noise and the samples of every fit by the test's name: a test that passes once passes always.

    Without it, a suite that asserts on noise fails now and then for no reason. Tests of the generators themselves,
    which must not be seeded, are marked ``system_noise``. Worker processes draw their own noise as ever.
    """
    if request.node.get_closest_marker("system_noise"):
        yield
        return
    with _repeatable(request.node.nodeid):
        yield


@pytest.fixture
def short_fits(request):
    """Fits with little post-processing: for tests whose claim does not depend on how well a model fits.

    Where a file uses it for all its tests, those that depend on it are marked ``full_fits``.
    """
    from _short_fits import short_postprocessing

    if request.node.get_closest_marker("full_fits"):
        yield
        return
    with short_postprocessing():
        yield


@pytest.hookimpl(hookwrapper=True)
def pytest_fixture_setup(fixturedef):
    """Seed by its own name what tests share: it is made before `repeatable_noise` begins."""
    if fixturedef.scope == "function":
        yield
        return
    with _repeatable(f"{fixturedef.baseid}::{fixturedef.argname}"):
        yield
