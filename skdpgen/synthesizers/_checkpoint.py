"""Checkpoints of fits that train by DP-SGD: a fit that was killed goes on, and nothing is charged or released twice.

A checkpoint holds released values and public facts alone: what was released before the training, the parameters of the
networks, the state of the optimiser, the plan, the parameters of the estimator. It holds no row and no draw. So its
permissions are those of any file, and it may be published. Of a fit by units it also holds the key that chose the rows
of each unit, for which the guarantee holds whatever the key is and whoever knows it.

The argument, in short (the page on what is charged has all of it):

- Before the first release the fit is charged, and afterwards a file says so. A fit that ends before its first releases
  are in the file has lost its charge: a release that was drawn is never drawn again.
- The releases before the training are read from the file, never repeated.
- Steps are taken from the ledger in blocks, before they run, with the hash of the file from which they go on (see
  `skdpgen.accounting._resumed_fit`). Steps that were taken and did not reach the file are lost.
- Noise, samples and dropout of the steps that follow come from a new secret generator.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from .. import __version__
from .._parameters import flat_parameters
from ..accounting._resumed_fit import ResumedFit, ledger_steps, plan_from_json, plan_to_json
from ..data.arrays import ArrayCodec
from ..data.frame_codec import FrameCodec
from ..data.frames import FrameRows
from ..data.rows_per_unit import OpenUnit
from ..exceptions import InvalidInputError, LedgerError
from ..tabular import Schema
from ..utils.atomic import Draft, write_atomically
from ..utils.callers import warn_user
from ..utils.file_checks import check_arrays
from ..utils.strict_json import read_safetensors
from ._released import MODEL_FORMAT, join_arrays, of_today, split_arrays

_FORMAT, _KIND = "skdpgen-fit-checkpoint/1", "a checkpoint of a fit"
_FIELDS = {
    *("format", "version", "model", "ledger", "record", "parameters", "data", "plan", "facts", "training", "steps"),
    "noise",
}
# Numbers of a fit by units, in a field of the file: of the generator for all, the others where they are released.
_UNITS, _OF_UNITS = "units", {"key": int, "max_rows": int, "row_count": float}
_FACTS, _TRAINING = "facts", "training."
# Parameters on which neither a release nor its cost depends, and objects that say nothing that could be compared.
_FREE = ("accountant", "checkpoint", "device", "max_memory", "progress", "random_state")


class FitCheckpoint:
    """The checkpoint of one fit, from its charge to its model.

    `path`: ends in .safetensors. Where there is a file, the fit goes on from it.
    `accountant`: with a ledger file.
    `estimator`: whose parameters are compared with those in the file.
    `planner`: what plans and charges the fit.
    `resumed`: whether the fit goes on.
    `training`: tensors of the training in the file, and numbers of its optimiser.
    Raises ValueError, RuntimeError, LedgerError: the fit cannot go on from the file, or cannot be written there.
        Nothing was charged or released.
    """

    def __init__(self, path, accountant, estimator):
        self.path, self.planner, self.resumed, self.training = path, accountant, False, None
        self._is_written = False  # with the first releases
        self.accountant, self._model = accountant, type(estimator).__name__
        self._parameters = _json(describe(flat_parameters(estimator), _FREE))
        self._defaults = _json(describe(flat_parameters(type(estimator)()), _FREE))
        self._facts = self._noise = self._data = self._found = None
        self._unit, self._of_units = estimator._unit, {}
        if not str(path).endswith(".safetensors"):
            raise ValueError(f"checkpoint= must end in .safetensors; got {str(path)!r}")
        ledger_steps(accountant, 0)  # an accountant without a ledger file is refused
        if os.path.lexists(path):
            self._open()
            return
        try:
            Draft(path).discard()
        except OSError as error:
            raise InvalidInputError(f"{path}: cannot be written ({error.strerror}); nothing was charged") from error

    # ---- a fit that goes on --------------------------------------------------------------------------------------
    def _open(self):
        """Read the file, and refuse whatever the fit cannot go on from."""
        header, content = self._read()
        if header["model"] != self._model:
            raise ValueError(f"{self.path} is the checkpoint of a {header['model']!r}, not of a {self._model!r}")
        self._steps = ledger_steps(self.accountant, header["record"])
        if header["ledger"] != self._steps.ledger.identity:
            raise LedgerError(
                f"{self.path} is the checkpoint of a fit charged to another ledger than {self.accountant.ledger}"
            )
        try:
            found = self._steps.of_fit()
        except ValueError as error:
            raise LedgerError(f"{self.path} does not fit the ledger {self.accountant.ledger}: {error}") from None
        self._check_file(header, content, found)
        # of a parameter that a version did not have yet, a fit that it began has the default
        begun = {**self._defaults, **_json(describe(of_today(header["parameters"]), _FREE))}
        _check_equal(self.path, "parameters", begun, self._parameters)
        plan = plan_from_json(header["plan"])
        if isinstance(self._unit, OpenUnit) and plan.unit == self._unit.closed(self._unit.max_rows):
            plan = replace(plan, unit=self._unit)  # it learns how many rows of a unit are used: so says the estimator
        self.planner, self._of_units = ResumedFit(self.accountant, plan, found), header.get(_UNITS, {})
        arrays = _arrays(self.path, content)
        check_arrays({name: array for name, array in arrays.items() if not name.startswith(_TRAINING)})
        self._facts = join_arrays(header["facts"], arrays)
        self._expected, self._plan, self._noise = header["data"], self.planner._plan, header["noise"]
        if header["training"] is not None:
            self.training = _training(arrays), header["training"]
        self.resumed, self._found, self._digest = True, found, _hash(content)

    def _read(self):
        """Header and content of the file; ValueError unless it is the checkpoint of a fit."""
        header, content = read_safetensors(self.path, _KIND)
        kind = header.get("format") if isinstance(header, dict) else None
        if kind == MODEL_FORMAT:
            raise RuntimeError(
                f"{self.path} holds a released model: its fit is complete. skdpgen.load reads it, and skdpgen sample "
                "draws rows from it. For a new fit, which is charged, give another path; nothing was charged"
            )
        if kind != _FORMAT or set(header) - {_UNITS} != _FIELDS or not _has_types(header):
            raise ValueError(f"{self.path}: not {_KIND}, or of a newer version; it is not overwritten")
        return header, content

    def _check_file(self, header, content, found):
        """Refuse a file that the ledger does not vouch for."""
        digest = _hash(content)
        if found.end is not None and digest != found.end:
            raise RuntimeError(
                f"the fit of {self.path}, charged as {found.charge.label!r}, was ended from another copy of this "
                "checkpoint: one charge is one model; nothing was charged"
            )
        if header["facts"] is None:
            raise RuntimeError(
                f"the fit of {self.path}, charged as {found.charge.label!r} (entry {header['record']} of the ledger), "
                "ended before its first releases were written. They are not drawn a second time under one charge, "
                "so that charge is lost. Remove the file for a new fit, which is charged"
            )
        if digest not in (found.files | {found.end}):
            raise RuntimeError(
                f"{self.path} was changed since the fit wrote it, or is not a file of the fit charged as "
                f"{found.charge.label!r}: the ledger does not know its hash; nothing was charged"
            )

    def check(self, plan, data):
        """Refuse a fit without noise, and rows with other public facts (see `describe_rows`) than those in the file."""
        if 0 in plan.noise_multipliers.values():
            raise ValueError("checkpoint= is for fits with noise: without it there is no charge to go on with")
        self._data = _json(data)
        if self.resumed:
            _check_equal(self.path, "data", self._expected, self._data)

    # ---- the course of a fit -------------------------------------------------------------------------------------
    def charged(self, plan, receipt):
        """Note that the fit was charged: from now on the file belongs to it."""
        if not self.resumed:
            self._plan, self._steps = plan, ledger_steps(self.accountant, receipt=receipt)
            self._put(self._content(0, None))

    def facts(self, release, state, restore):
        """Make the releases before the training, or read them from the file.

        `release`: makes the releases; called at most once for a charge.
        `state`: what `release` returns -> released values, as nested dicts of arrays and of what JSON holds.
        `restore`: that, read from the file -> what `release` returned.
        """
        if self.resumed:
            return restore(self._facts)
        found = release()
        self._facts = state(found)
        return found

    def once(self, name, make):
        """Make a number of a fit by units, or read it from the file: each is made once for a charge."""
        if not self.resumed:
            self._of_units[name] = make()
        elif name not in self._of_units:
            raise RuntimeError(f"{self.path} lacks the {name!r} of a fit by units; nothing was released")
        return self._of_units[name]

    def follow(self, plan):
        """Take the first steps of the training of this process from the ledger, and write what was released so far."""
        if self.resumed:
            plan._use.resume(self._steps, self._found.taken)
            if self._found.taken < self._found.steps:
                plan.take_block(self._digest)
            return
        plan._use.record = self._steps
        content = self._content(0, None)
        plan.take_block(_hash(content))
        self._put(content)
        self._is_written = True

    def how_to_go_on(self):
        """Return what to do after an interruption, in words, where there are first releases in the file; else ""."""
        if not (self.resumed or self._is_written):
            return ""
        return f"; the same call goes on from {self.path}, and charges nothing more"

    def write(self, plan, tensors, numbers, steps, noise):
        """Write the training after some steps, once the next block was taken from the ledger, or the fit was ended.

        `tensors`, `numbers`: of the training: parameters of networks, state of the optimiser, averages. `steps`: taken
        so far. `noise`: source of the noise, and whether it was private.
        """
        if self._found is not None and self._found.end is not None:
            return  # the file is the one at which the fit was ended
        content = self._content(steps, (tensors, numbers), self.noise(noise))
        if steps < plan.steps:
            plan.take_block(_hash(content))
        else:
            self._steps.end_fit(known=plan._use.known, file=_hash(content))
        # The ledger first: a file that it does not know could not be resumed, and the last one still can be.
        self._put(content)

    def noise(self, noise):
        """Source of the noise of all steps so far, and whether all of it was private."""
        if noise is None or self._noise is None:
            return noise
        return noise[0], bool(noise[1] and self._noise[1])

    def complete(self, synthesizer):
        """Put the released model in the place of the checkpoint."""
        try:
            self._check_place()
            synthesizer.save(self.path)
        except (OSError, RuntimeError) as error:
            warn_user(
                f"the fit is complete, but its model could not be written to {self.path} ({error}): save it by save()",
                UserWarning,
            )

    # ---- the file ------------------------------------------------------------------------------------------------
    def _content(self, steps, training, noise=None):
        from safetensors.numpy import save

        arrays = {}
        facts = None if self._facts is None else split_arrays(self._facts, arrays, _FACTS)
        if training is not None:
            arrays.update({_TRAINING + name: value.detach().cpu().numpy() for name, value in training[0].items()})
        ledger, record = self._steps.identity
        header = {
            "format": _FORMAT,
            "version": __version__,
            "model": self._model,
            "ledger": ledger,
            "record": record,
            "parameters": self._parameters,
            "data": self._data,
            "plan": plan_to_json(self._plan),
            "facts": facts,
            "training": None if training is None else training[1],
            "steps": steps,
            "noise": None if noise is None else list(noise),
            **({_UNITS: self._of_units} if self._of_units else {}),
        }
        return save(arrays, metadata={"skdpgen": json.dumps(header, allow_nan=False)})

    def _put(self, content):
        self._check_place()
        write_atomically(self.path, content)

    def _check_place(self):
        """Refuse to overwrite what another fit has put to the path meanwhile."""
        if not os.path.lexists(self.path):
            return
        header, _ = read_safetensors(self.path, _KIND, whole=False)
        if not isinstance(header, dict) or (header.get("ledger"), header.get("record")) != self._steps.identity:
            raise RuntimeError(f"{self.path} is a file of another fit by now; it is not overwritten")


def codec_of(state):
    """Return the codec that was released before the training, from its state in a checkpoint."""
    return {"array": ArrayCodec, "frame": FrameCodec}[state["kind"]].from_state(state)


# ---- what a fit depends on ----------------------------------------------------------------------------------------
def describe(value, leave_out=()):
    """Return a public parameter as JSON holds it, so that two can be compared: large arrays by their hash."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, type):
        return _name(value)
    if isinstance(value, Schema):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {str(key): describe(item) for key, item in value.items() if key not in leave_out}
    if isinstance(value, list | tuple | range):
        return [describe(item) for item in value]
    if isinstance(value, np.ndarray) and value.dtype != object:
        return [str(value.dtype), list(value.shape), _hash(np.ascontiguousarray(value).tobytes())]
    if hasattr(value, "state_dict"):  # a module of torch
        tensors = {name: part.detach().cpu().numpy() for name, part in value.state_dict().items()}
        return [_name(value), describe(tensors)]
    if hasattr(value, "get_params"):  # a net or one of its callbacks
        return [_name(value), describe(value.get_params(deep=False))]
    return _name(value)


def _name(value):
    kind = value if hasattr(value, "__qualname__") else type(value)  # classes and functions have a name
    return f"{kind.__module__}.{kind.__qualname__}"


def describe_rows(estimator, rows, relation):
    """Return the public facts of the rows of a fit, as JSON holds them; between units the number of rows is none."""
    names = getattr(estimator, "feature_names_in_", None)
    facts = {
        "columns": None if names is None else list(map(str, names)),
        "rows": len(rows) if relation == "replace_one" else None,
    }
    if isinstance(rows, FrameRows):
        return {**facts, "schema": rows.table.to_dict(), "y": rows.y, "target": describe(rows.target)}
    return {**facts, "n_features": rows.n_features, "y": None if rows.labels is None else rows.labels.to_state()}


def _check_equal(path, kind, then, now):
    then, now = (part if isinstance(part, dict) else {} for part in (then, now))
    if changed := sorted(name for name in {*then, *now} if then.get(name) != now.get(name)):
        raise ValueError(
            f"{path} is the checkpoint of a fit with other {kind}: {', '.join(changed)}. Give what the fit began with, "
            "or another path for a new fit, which is charged; nothing was charged"
        )


def _json(value):
    """What a reader finds in the file."""
    return json.loads(json.dumps(value, allow_nan=False))


def _hash(content):
    return hashlib.sha256(content).hexdigest()


def _has_types(header):
    numbers = (header["record"], header["steps"])
    dicts = (header["parameters"], header["data"], header["plan"])
    noise, training, of_units = header["noise"], header["training"], header.get(_UNITS, {})
    return (
        isinstance(of_units, dict)
        and all(type(value) is _OF_UNITS.get(name) and value >= 0 for name, value in of_units.items())
        and isinstance(header["model"], str)
        and all(type(number) is int and number >= 0 for number in numbers)
        and all(isinstance(part, dict) for part in dicts)
        and isinstance(header["facts"], dict | None)
        and (noise is None or (isinstance(noise, list) and list(map(type, noise)) == [str, bool]))
        and (training is None or (isinstance(training, dict) and all(isinstance(p, dict) for p in training.values())))
    )


def _arrays(path, content):
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        return load(content)
    except (SafetensorError, AttributeError, KeyError, TypeError, ValueError):
        raise ValueError(f"{path}: not {_KIND}") from None


def _training(arrays):
    import torch

    found = {name.removeprefix(_TRAINING): value for name, value in arrays.items() if name.startswith(_TRAINING)}
    return {name: torch.from_numpy(value.copy()) for name, value in found.items()}
