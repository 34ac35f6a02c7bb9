"""Model files from anybody: those of earlier versions load, and no mutant is loaded that gives no finite sample."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from _watchdog import ends
from safetensors.numpy import load as read_arrays
from safetensors.numpy import save as write_arrays

import skdpgen

DATA = Path(__file__).parents[1] / "data"
NAMES = sorted(path.stem for path in DATA.glob("*.safetensors"))
ODD_NUMBERS = [0, -1, 1, 2, 3.5, -1e300, 1e300, 3 * 10**8, 10**12, 10**250, True, None, "x", [], {}, [[1]], "inf"]


def parts(path):
    """Header of the package and arrays of a model file."""
    content = Path(path).read_bytes()
    outer = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return json.loads(outer["__metadata__"]["skdpgen"]), {k: v.copy() for k, v in read_arrays(content).items()}


def write(path, header, arrays):
    text = header if isinstance(header, str) else json.dumps(header)
    Path(path).write_bytes(write_arrays(arrays, metadata={"skdpgen": text}))


def places(value, trail=()):
    """All places in nested lists and dicts, the inner ones among them."""
    items = value.items() if isinstance(value, dict) else enumerate(value[:3]) if isinstance(value, list) else ()
    for key, item in items:
        yield (*trail, key)
        yield from places(item, (*trail, key))


def mutant(header, arrays, rng):
    """One change of a header, or of an array."""
    if rng.random() < 0.5:
        name = list(arrays)[rng.integers(len(arrays))]
        array = arrays[name]
        kind = rng.integers(6)
        if kind == 0 and array.dtype.kind == "f" and array.size:
            array.flat[rng.integers(array.size)] = rng.choice([np.nan, np.inf, -np.inf])
        elif kind == 1 and array.size:
            array.flat[rng.integers(array.size)] = rng.choice([-1, 100]) if array.dtype.kind in "iu" else -1e30
        elif kind == 2:
            arrays[name] = np.ascontiguousarray(array[..., :-1]) if array.ndim else array[None]
        elif kind == 3:
            arrays[name] = np.zeros((0, 10**12), dtype=array.dtype)
        elif kind == 4:
            arrays[name] = array.astype(np.int8)
        else:
            arrays[name] = np.concatenate([array.ravel(), array.ravel()])
        return f"{name} {kind}"
    trails = list(places(header["state"]["model"]))
    trail = trails[rng.integers(len(trails))]
    inner = header["state"]["model"]
    for step in trail[:-1]:
        inner = inner[step]
    if rng.random() < 0.2 and isinstance(inner, dict):
        del inner[trail[-1]]
    else:
        inner[trail[-1]] = ODD_NUMBERS[rng.integers(len(ODD_NUMBERS))]
    return f"{trail}"


def finite(drawn):
    """Whether a sample holds numbers that are finite; what may be missing is left aside."""
    parts = drawn if isinstance(drawn, tuple) else (drawn,)
    for part in parts:
        frame = part if isinstance(part, pd.DataFrame) else pd.DataFrame(part)
        numbers = frame.select_dtypes("number").to_numpy(dtype=np.float64, na_value=0.0)
        if np.isinf(numbers).any() or (isinstance(part, np.ndarray) and np.isnan(numbers).any()):
            return False
    return True


@pytest.mark.parametrize("name", NAMES)
def test_models_of_earlier_versions_load_and_sample(name):
    model = skdpgen.load(DATA / f"{name}.safetensors")
    assert finite(model.sample(25, random_state=0))
    assert finite(model.sample(random_state=0))
    if "units" in name:
        assert finite(model.sample(units=25, random_state=0))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numbers that are finite, and too large
@pytest.mark.parametrize("name", NAMES)
def test_a_mutated_model_is_refused_or_gives_a_finite_sample(name, tmp_path):
    rng = np.random.default_rng(25)
    path = tmp_path / "m.safetensors"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refusals = 0
    for _ in range(30):
        header, arrays = parts(DATA / f"{name}.safetensors")
        told = mutant(header, arrays, rng)
        write(path, header, arrays)
        try:
            with ends():
                model = skdpgen.load(path)
                drawn = model.sample(50, random_state=0)
                if getattr(model.model_, "units", None) is not None:
                    drawn = drawn, model.sample(units=50, random_state=0)
        except ValueError:
            refusals += 1
        else:
            assert finite(drawn), told
    assert refusals >= 10
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400_000, "memory"
