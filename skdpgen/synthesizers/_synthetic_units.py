"""Synthetic units of several rows: `columns` of a PrivacyUnit, the release of their tables, `sample(units=)`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Integral

import numpy as np
import pandas as pd

from .._parameters import unit_columns
from ..data.frames import FrameRows
from ..exceptions import InvalidInputError
from ..generators.conditioning import conditions_on_units
from ..generators.units import UnitModel, UnitSampler, column_of_order, fit_shared, fit_units, in_order, with_ids
from ..mechanisms import add_gaussian, unit_plan, unpack_one_hot_moments
from ..tabular._identifiers import with_keys
from ..utils.callers import warn_user
from ..utils.printing import listed, shown

# Share of the moments' budget for the tables of units: of their number of rows alone, and with columns.
_SIZES_SHARE, _COLUMNS_SHARE = 0.02, 0.1
# And for how alike two rows of a unit are.
_PAIRS_SHARE = 0.04
# Units of two rows are too few below so many standard deviations of the noise on their number.
_SURE = 2.0
# Units that are drawn in one call are fewer than this.
_MOST_UNITS = 10**9


@dataclass(frozen=True)
class UnitSettings:
    """What is released of units of several rows, beside the rows; public."""

    name: object  # column name; of the identifiers, in a sample
    columns: tuple  # column names; that are constant within a unit
    shared: tuple = ()  # column names; in which the rows of a synthetic unit are as alike as those of a real one

    @property
    def share(self):
        """Share of the budget of the moments."""
        return _COLUMNS_SHARE if self.columns else _SIZES_SHARE

    @property
    def pair_share(self):
        """Share of the budget of the moments for pairs of rows."""
        return _PAIRS_SHARE if self.shared else 0.0


def unit_settings(estimator, rows, model):
    """Return what a fit releases of its units, from public facts; None where it has none, or no rows of a table.

    `estimator`: in a fit: its unit is known. `rows`: validated. Raises ValueError, InvalidInputError: `columns` or
    `shared` of the unit are given where they have no meaning; nothing was charged.
    """
    asked = estimator._asked_unit
    given = [name for name in ("columns", "shared") if getattr(asked, name) is not None]
    if estimator._unit is None or not isinstance(rows, FrameRows) or not model.moments_alone:
        if not given:
            return None
        raise InvalidInputError(
            f'{given[0]}= of PrivacyUnit is for DataFrames, without prior="mixture" and decoder="net"; nothing was '
            "charged"
        )
    known, keys = rows.table.names, [key.name for _, key in rows.keys]
    for which in given:
        _check_names(which, unit_columns(asked, which), known, keys)
    columns, shared = unit_columns(asked), unit_columns(asked, "shared")
    changed = () if rows.construction is None else rows.construction.changed
    for name in shared:
        why = "columns= names too: leave it out there, or here" * (name in columns)
        why = why or "a constraint constructs: leave it out of shared=, or leave the constraint out" * (name in changed)
        if why:
            raise InvalidInputError(f"shared= of PrivacyUnit names {name!r}, which {why}. Nothing was charged")
    if shared and not rows.source.whole_units:
        raise InvalidInputError(
            f"shared= of PrivacyUnit needs two rows of a unit together: sort the chunks by {estimator._unit.name!r} in "
            "ascending order, or give a DataFrame. Nothing was charged"
        )
    return UnitSettings(_name_of_ids(asked.name, {*known, *keys}), columns, shared)


def _check_names(which, columns, known, keys):
    """Refuse what names no columns of the table, or one of them twice."""
    if unknown := [name for name in columns if name not in known]:
        why = "is an identifier, which is not modelled" if unknown[0] in keys else f"is no column: {listed(known, 20)}"
        raise InvalidInputError(f"{which}= of PrivacyUnit names {unknown[0]!r}, which {why}. Nothing was charged")
    if len(set(columns)) < len(columns):
        raise InvalidInputError(f"{which}= of PrivacyUnit names a column twice: {listed(columns)}. Nothing was charged")


def _name_of_ids(unit, taken):
    """Name of the column of synthetic identifiers; of `groups`, which have no column, one that no column has."""
    name = "unit" if unit is None else unit
    while name in taken:
        name = f"{name}_"
    return name


def release_units(rows, codec, settings, fit):
    """Release the tables of units, and fit the model of units to them.

    `codec`: released.
    """
    tables = rows.unit_tables(codec, settings.columns)
    noise_multiplier = fit.noise["units"]
    packed = add_gaussian(tables, noise_multiplier, fit.rng, fit.neighboring)
    n_levels = [codec.encoder.blocks_[at].size for at in codec.places(settings.columns)]
    plan = unit_plan(n_levels, rows.unit.max_rows)
    noise_sd = plan.noise_sd(noise_multiplier * tables.sensitivity(fit.neighboring))
    released = unpack_one_hot_moments(packed, plan)
    latent = fit_units(released, noise_sd, plan.contrasts, codec, settings.columns, fit.stream)
    return UnitModel(settings.name, settings.columns, rows.unit.max_rows, latent)


def release_pairs(rows, model, shared, fit):
    """Release how alike two rows of a unit are in some columns, and let those of synthetic units be so.

    `model`: with `units`.
    """
    counts = rows.unit_pairs(model.codec, shared)
    noise_multiplier = fit.noise["unit_pairs"]
    n_units, *alike = add_gaussian(counts, noise_multiplier, fit.rng, fit.neighboring)
    if n_units <= _SURE * noise_multiplier * counts.sensitivity(fit.neighboring):
        warn_user(
            f"too few units of two rows for this noise to tell how alike they are in {listed(shared)}: rows of "
            "synthetic units are independent in these columns"
        )
        return replace(model.units, shared=shared, copied=(0.0,) * len(shared))
    return fit_shared(model, shared, np.clip(np.array(alike) / n_units, 0.0, 1.0), fit.stream)


class SyntheticUnitsMixin:
    """`sample_chunks` by units, and the attributes of a fit with released tables of units."""

    _has_unit_columns = True

    def _set_model(self, model):
        super()._set_model(model)
        units = getattr(model, "units", None)
        if units is None:
            return
        self.unit_count_ = units.n_units
        self.rows_per_unit_ = pd.Series(
            units.size_shares, index=pd.Index(units.starts, name="rows"), name="share of units"
        )

    def _unit_chunks(self, units, random_state, rows_at_once, given=None, order_by=None):
        """Yield chunks of the rows of whole synthetic units, with their identifiers as the first column."""
        model = self.model_
        if getattr(model, "units", None) is None:
            raise ValueError(
                "units= needs a fit with unit=, or groups=, to a DataFrame, without mixture and network: this model "
                "has no number of rows of a unit"
            )
        if isinstance(units, bool) or not isinstance(units, Integral) or not 1 <= units < _MOST_UNITS:
            raise ValueError(f"units must be a whole number from 1 to {_MOST_UNITS - 1:,}; got {shown(units)}")
        conditions = [] if given is None else conditions_on_units(model, given)
        rows_schema = model.codec.drawn_schema
        if model.codec.y != "none":  # a separate y is no column of the rows
            rows_schema = rows_schema.select(rows_schema.names[:-1])
        column = column_of_order(rows_schema, model.units.columns, order_by)
        sampler = UnitSampler(model, [*self._drawn_again(), *conditions])
        rng, n_rows = self._sampler(random_state), 0
        step = max(1, int(rows_at_once / model.units.mean_size))
        for start in range(0, units, step):
            rows, own = sampler.sample(min(step, units - start), rng)
            rows = rows if column is None else in_order(rows, own, column)
            yield with_ids(with_keys(rows, model.codec.keys, n_rows, own), start + own, model.units.name)
            n_rows += len(own)
