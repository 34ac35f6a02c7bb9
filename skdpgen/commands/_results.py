"""Files that commands write: drafts before a charge, rows as they are drawn, a released model that is never lost."""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import tempfile
from pathlib import Path

import numpy as np

from ..data.sources import is_parquet
from ..data.table_writing import date_formats_of, example_of, whole_numbers_of, write_table
from ..exceptions import InvalidInputError
from ..generators.constraints import UnsatisfiedError
from ..generators.units import with_ids
from ..utils.atomic import Draft
from ._arguments import options

# Suffix of a released model that was saved elsewhere, because its rows or the model itself could not be written.
RESCUE_SUFFIX = ".rescue.safetensors"


class Results:
    """The output files of a fit, as a context: drafts of all files are made before anything is charged.

    `output`: file of the rows. `card`, `model`, `units`: files of the privacy card, of the released model and of the
    synthetic units, if they are asked for.
    """

    def __init__(self, output, card=None, model=None, units=None):
        self.output, self.card, self.model, self.units = output, card, model, units

    def __enter__(self):
        self._drafts = {}
        for path in filter(None, (self.output, self.card, self.model, self.units)):
            try:
                self._drafts[path] = Draft(path)
            except OSError as error:
                self.__exit__()
                raise InvalidInputError(f"{path}: cannot be written ({error.strerror}); nothing was charged") from error
        return self

    def __exit__(self, *raised):
        for draft in self._drafts.values():
            draft.discard()

    def write(self, synthesizer, n_rows, **given):
        """Write the model, then the rows, then the card: the model cannot be computed again without another charge.

        Until the rows are written, a copy of the released model is kept beside them, because a process may be killed
        while it draws. If one file fails, the others are still written. The card states the SHA-256 of those that were.

        **given: of `write_rows`. Returns: how many rows were written. Raises RuntimeError, KeyboardInterrupt: the
        message says what was charged, and where the released model is.
        """
        failures, kept, rescued, files = [], None, None, {}
        try:
            try:
                if self.model:
                    synthesizer.save(self._drafts[self.model])
                    kept = files["model"] = self.model
            except Exception as error:
                failures.append(error)
            if kept is None:
                kept = rescued = self._rescue(synthesizer)
            try:
                units = None if self.units is None else self._drafts[self.units]
                written = write_rows(synthesizer, n_rows, self._drafts[self.output], units_path=units, **given)
                files |= {"synthetic": self.output} | ({} if units is None else {"units": self.units})
            except Exception as error:
                failures.append(error)
            try:
                self._write_card(synthesizer, files)
            except Exception as error:
                failures.append(error)
        except BaseException as error:
            kept = kept or self._rescue(synthesizer)
            with contextlib.suppress(Exception):
                self._write_card(synthesizer, files)
            raise type(error)(f"interrupted; {self._charged(synthesizer, kept, n_rows, given)}") from error
        if failures:
            reasons = "; ".join(map(_reason, failures))
            raise RuntimeError(f"{reasons}; {self._charged(synthesizer, kept, n_rows, given)}") from failures[0]
        if rescued is not None:
            with contextlib.suppress(OSError):
                os.unlink(rescued)
        return written

    def _charged(self, synthesizer, kept, n_rows, given):
        """What was charged, where the model is, and the command that draws the rows and writes their card."""
        fit = synthesizer.card_["fit"]
        charged = f"charged epsilon {float(fit['epsilon']):.6g} at delta {fit['delta']:.3g}; the released model"
        if kept is None:
            return f"{charged} could not be written anywhere, and is lost"
        asked = given.get("asked") or {}
        files = {"units_output": self.units, "output": self.output, "card": self.card}
        how = options(rows=n_rows, units=asked.get("units"), order_by=asked.get("order_by"), **files)
        return f"{charged} is in {kept}, for skdpgen sample {shlex.quote(str(kept))}{how}"

    def _write_card(self, synthesizer, files):
        """Write the card with the digests of the files written; a pipe or a terminal cannot be read again."""
        if self.card:
            files = {name: path for name, path in files.items() if not self._drafts[path].direct}
            synthesizer.card_.with_files(**files).save(self._drafts[self.card])

    def _rescue(self, synthesizer):
        """Write the model to the first folder that accepts it; return its path, or None."""
        name = f"{Path(self.output).name[:100]}.{secrets.token_hex(4)}{RESCUE_SUFFIX}"
        folders = [draft.target.parent for draft in self._drafts.values() if not draft.direct]
        with contextlib.suppress(OSError):  # there may be no folder for temporary files
            folders.append(Path(tempfile.gettempdir()))
        for folder in dict.fromkeys([*folders, Path(), Path(os.path.expanduser("~"))]):
            with contextlib.suppress(Exception):
                synthesizer.save(Draft(folder / name, mode=0o600))
                return folder / name
        return None


def _reason(error):
    if isinstance(error, UnsatisfiedError):
        return error.of_command("skdpgen sample --relax TEXT draws rows that may violate a constraint")
    return str(error) or type(error).__name__


def write_rows(
    synthesizer, n_rows, path, *, asked=None, random_state=None, date_formats=None, units_path=None, **written
):
    """Draw rows, write them as they are drawn, and return their number.

    `n_rows`, `random_state`: as for ``sample``.
    `asked`: more arguments of ``sample``; those that are None are left out.
    `date_formats`: formats of columns of dates that are not in ISO 8601.
    `units_path`: file of the synthetic units, whose columns the rows then lack.
    **written: options of `write_table`.
    """
    schema = getattr(synthesizer, "schema_", None)
    asked = {name: value for name, value in (asked or {}).items() if value is not None}
    units = getattr(synthesizer.model_, "units", None) if asked.get("units") or units_path is not None else None
    tables = None if units_path is None else UnitTables(units)
    if units is not None and "units" not in asked:
        asked["units"] = round(units.n_units)

    def write(frames, path, part):
        kinds = {}
        if schema is not None and is_parquet(getattr(path, "target", path)):
            example = synthesizer.as_frame(synthesizer.model_.codec.part(example_of(schema)))
            example = example if units is None else with_ids(example, np.arange(len(example)), units.name)
            kinds["example"] = part(example)
        elif schema is not None:
            kinds["date_formats"] = date_formats_of(schema) | (date_formats or {})
            kinds["whole"] = whole_numbers_of(schema)
        return write_table(frames, path, **written, **kinds)

    frames = map(synthesizer.as_frame, synthesizer.sample_chunks(n_rows, random_state=random_state, **asked))
    if tables is None:
        return write(frames, path, lambda frame: frame)
    n_written = write(tables.rows(frames), path, tables.rows_of)
    write(tables.units(), units_path, tables.units_of)
    return n_written


def write_refits(synthesizer, n_fits, n_rows, path, random_state=None, **written):
    """Write samples of a model and of its refits as one table, whose first column is the number of the refit.

    `n_fits`, `n_rows`, `random_state`: as `samples_of_refits` takes them. **written: options of `write_table`.
    Returns: number of rows.
    """
    from ..metrics._refits import samples_of_refits

    schema = getattr(synthesizer, "schema_", None)
    if schema is not None and "refit" in schema:
        raise ValueError("--refits writes a column 'refit', and the table has one")

    def frames():
        samples = samples_of_refits(synthesizer, n_fits, size=n_rows, random_state=random_state)
        for number, tables in enumerate(samples):
            frame = synthesizer.as_frame(tables if len(tables) > 1 else tables[0])
            yield frame.assign(refit=number)[["refit", *frame.columns]]

    kinds = {} if schema is None else {"date_formats": date_formats_of(schema), "whole": whole_numbers_of(schema)}
    return write_table(frames(), path, **written, **kinds)


class UnitTables:
    """Splits rows of synthetic units into two tables that refer to each other by the numbers of the units.

    `units`: of the released model.
    """

    def __init__(self, units):
        if not units.columns:
            raise ValueError("--units-output needs --unit-columns of the fit: a unit would have nothing but a number")
        self._name, self._columns, self._found = units.name, list(units.columns), []

    def rows(self, frames):
        """Yield the chunks without the columns of units, which are kept for `units`."""
        for frame in frames:
            yield self.rows_of(frame)
            self._found.append(self.units_of(frame))

    def rows_of(self, frame):
        """Return the table of rows."""
        return frame.drop(columns=self._columns)

    def units_of(self, frame):
        """Return the table of units."""
        return frame[[self._name, *self._columns]].drop_duplicates(self._name, ignore_index=True)

    def units(self):
        """Return the table of all units whose rows have been taken."""
        import pandas as pd

        return pd.concat(self._found, ignore_index=True)
