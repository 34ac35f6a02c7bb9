"""Who may import whom: the list of rooms, read from the source."""

from __future__ import annotations

import ast
import functools
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import skdpgen

ROOT = Path(skdpgen.__file__).parent
# A room imports rooms of a smaller number and itself.
LEVELS = {
    "exceptions": 0,
    "_types": 0,
    "utils": 1,
    "_parameters": 2,
    "testing": 2,
    "mechanisms": 2,
    "accounting": 2,
    "_base": 3,
    "tabular": 3,
    "dpsgd": 3,
    "data": 4,
    "decomposition": 5,
    "mixture": 5,
    "nn": 5,
    "generators": 6,
    "synthesizers": 7,
    "model_selection": 7,
    "metrics": 8,
    "datasets": 8,
    "audit": 8,
    "estimator_checks": 9,
    "report": 9,
    "commands": 10,
    "__main__": 11,
}
# The one pair on one level: the mixture symmetrises and cleans released moments as DP-PCA does.
SAME_LEVEL = {("mixture", "decomposition")}
FILES = sorted(ROOT.rglob("*.py"))


def _room(path):
    return path.relative_to(ROOT).with_suffix("").parts[0]


@functools.cache
def _imports(path):
    """Absolute names of the modules that a file imports, at its top or anywhere in it, and where."""
    return list(_found_imports(path))


def _found_imports(path):
    package = ["skdpgen", *path.relative_to(ROOT).with_suffix("").parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield module, node
            yield from ((f"{module}.{alias.name}", node) for alias in node.names)


@functools.cache
def _typing_only(path):
    """Lines of imports for annotations alone."""
    lines = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            lines.update(range(node.lineno, node.end_lineno + 1))
    return lines


def _rooms_imported(path):
    for name, node in _imports(path):
        parts = name.split(".")
        if parts[0] == "skdpgen" and len(parts) > 1 and parts[1] in LEVELS and node.lineno not in _typing_only(path):
            yield parts[1], node.lineno


def test_every_room_has_a_level():
    assert {_room(path) for path in FILES} - {"__init__"} == set(LEVELS)


def test_rooms_name_each_other_by_dots():
    absolute = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and not node.level and node.module.partition(".")[0] == "skdpgen"
    ]
    assert not absolute


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_up_the_list(path):
    room = _room(path)
    if room == "__init__":
        return
    for other, line in _rooms_imported(path):
        allowed = other == room or LEVELS[other] < LEVELS[room] or (room, other) in SAME_LEVEL
        assert allowed, f"{path.relative_to(ROOT)}:{line} imports {other}"


def test_mechanisms_and_accounting_do_not_know_each_other():
    for room, other in (("mechanisms", "accounting"), ("accounting", "mechanisms")):
        for path in (ROOT / room).rglob("*.py"):
            assert other not in {name for name, _ in _rooms_imported(path)}


def _users(wanted):
    return {_room(path) for path in FILES for name, _ in _imports(path) if wanted(name.split("."), path)}


def test_accounting_alone_imports_dp_accounting():
    assert _users(lambda parts, path: parts[0] == "dp_accounting") == {"accounting"}


def test_utils_alone_imports_what_scikit_learn_keeps_private():
    assert _users(lambda parts, path: parts[0] == "sklearn" and any(p.startswith("_") for p in parts)) == {"utils"}


def test_skorch_is_imported_by_nn_alone_and_torch_by_rooms_that_train():
    assert _users(lambda parts, path: parts[0] == "skorch") <= {"nn"}
    assert _users(lambda parts, path: parts[0] == "torch") <= {"nn", "dpsgd", "synthesizers"}


def test_importing_the_package_and_fitting_without_a_net_does_not_import_torch():
    code = """
import sys
import skdpgen
assert "torch" not in sys.modules and "pandas" not in sys.modules
for name in skdpgen.__all__:
    getattr(skdpgen, name)
import skdpgen.synthesizers, skdpgen.tabular, skdpgen.metrics, skdpgen.datasets, skdpgen.__main__
skdpgen.P3GMSynthesizer(bounds=(0, 1)).fit([[0.0, 1.0]] * 50).sample(3)
assert "torch" not in sys.modules, "torch"
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def _loaded(code):
    """Modules that a process of its own has loaded after some code."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules, file=sys.stderr)"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return set(done.stderr.split())


def test_a_schema_is_written_without_scikit_learn_and_the_mechanisms(tmp_path):
    (tmp_path / "rows.csv").write_text("age,job,since\n31,nurse,2020-01-02\n47,clerk,2021-03-04\n")
    loaded = _loaded(f"from skdpgen.__main__ import main\nassert main(['schema', {str(tmp_path / 'rows.csv')!r}]) == 0")
    assert "pandas" in loaded
    for name in ("sklearn", "scipy", "dp_accounting", "torch", "tqdm", "matplotlib", "skdpgen.mechanisms"):
        assert name not in loaded, name


def test_a_table_fit_loads_no_network_no_picture_no_cluster_and_no_other_model():
    code = """
import pandas as pd
import warnings
from skdpgen import MomentSynthesizer
warnings.simplefilter("ignore")
MomentSynthesizer(10.0).fit(pd.DataFrame({"a": ["x", "y"] * 30, "b": range(60)})).sample(3)
"""
    loaded = _loaded(code)
    assert "skdpgen.synthesizers._moment" in loaded
    others = {f"skdpgen.synthesizers.{name}" for name in ("_dp2vae", "_dpgm", "_dp_merf", "_privae", "_pipeline")}
    rooms = {f"skdpgen.{name}" for name in ("dpsgd", "nn", "metrics", "report", "audit", "model_selection", "datasets")}
    packages = {"torch", "skorch", "matplotlib", "dask", "distributed", "tqdm"}
    parts = {"sklearn.ensemble", "sklearn.linear_model", "sklearn.model_selection", "sklearn.pipeline"}
    assert not loaded & (others | rooms | packages | parts)


def test_every_public_name_is_there():
    for name in skdpgen.__all__:
        assert getattr(skdpgen, name) is not None
    with pytest.raises(AttributeError):
        skdpgen.nothing_of_the_kind  # noqa: B018


@pytest.mark.parametrize("package", ["", "report", "synthesizers", "tabular"])
def test_type_checkers_see_every_name_that_is_imported_on_first_use(package):
    path = ROOT / package / "__init__.py"
    tree = ast.parse(path.read_text(encoding="utf-8"))
    seen = {
        alias.asname: ((node.module + ".") if node.module else "") + alias.name
        for block in tree.body
        if isinstance(block, ast.If) and getattr(block.test, "id", "") == "TYPE_CHECKING"
        for node in block.body
        for alias in node.names
    }
    module = importlib.import_module(f"skdpgen.{package}".rstrip("."))
    assert seen == {
        **{name: f"{home}.{name}" for name, home in module._HOMES.items()},
        **{name: name for name in getattr(module, "_FOLDERS", ())},
    }


def test_annotations_are_marked_for_type_checkers():
    assert (ROOT / "py.typed").exists()  # PEP 561; setup.cfg puts it into the wheel
