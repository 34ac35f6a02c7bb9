"""Names of a package that are imported on first use."""

from __future__ import annotations

import importlib
import sys


def lazy_names(package, homes, modules=()):
    """Return `__getattr__` and `__dir__` of a package.

    `package`: its name. `homes`: public names, and the modules of the package that they are in. `modules`: modules of
    the package that are names of it too.
    """

    def get(name):
        if name in homes:
            return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)
        if name in modules:
            return importlib.import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def names():
        return sorted([*vars(sys.modules[package]), *homes])

    return get, names
