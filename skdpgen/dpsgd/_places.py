"""How many places a step has for its records, or for the rows of its units: public numbers that follow from the plan.

A record or a unit that joins takes free places, and no other moves. So there are more places than a step needs, and
where each stands depends on no other.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from scipy.special import lambertw

# Minus the logarithm of the probability with which a step has more records than places (see `room_for`).
_RARE = 36
# Records and units are computed in physical batches of at most so many rows, where nothing else is said. Units get
# more: the fewer of them a physical batch holds on average, the larger the share of its places that stays free.
MOST_ROWS, _MOST_ROWS_OF_UNITS = 1024, 4096
# Where units need several physical batches, those of more rows than this share of one are computed alone. With a 64th,
# a shared batch is 28 % full on average, or more; with a 16th, it would be 1 % full.
_SHARE_OF_ONE = 64


def room_for(expected, most=1, batches=1) -> int:
    """Places for records that take part independently: more of them come with a probability below e**-36.

    `expected`: mean number of records, or of rows of units with at most `most` rows each. A sum of independent numbers
    between 0 and 1, of mean m, is above a > m with a probability of at most exp(-(a log(a / m) - a + m)) (Chernoff).
    With Lambert's function W this is e**-L at a = m exp(1 + W((L / m - 1) / e)).
    `batches`: number of batches of that mean, in none of which more come with that probability.
    """
    mean, rare = expected / most, _RARE + math.log(batches)
    room = mean * math.exp(1 + lambertw((rare / mean - 1) / math.e).real)
    return max(1, math.ceil(most * room))


def room_for_units(expected, unit) -> int:
    """Places for the rows of records, or of units, that take part independently: see `room_for`.

    `expected`: mean sum of the weights of the rows. Where each row counts 1, it is the mean number of rows. Where each
        unit counts 1, it is the mean number of units, each of which has up to `max_rows` rows.
    """
    if unit is None:
        return room_for(expected)
    return room_for(expected * unit.max_rows if unit.weighting == "units" else expected, unit.max_rows)


class PhysicalBatches(NamedTuple):
    """The physical batches of a step.

    `size`: places of each, for a row.
    `number`: how many there are; 0 where each unit is computed alone.
    `shared`: rows of the largest units that share them. Larger ones are computed alone.
    """

    size: int
    number: int
    shared: int = 1


def batches_of_records(expected, limit=None) -> PhysicalBatches:
    """Physical batches for records: of `limit` rows, or of equal parts of the room that a step needs."""
    room = room_for(expected)
    size = limit or -(-room // -(-room // MOST_ROWS))
    return PhysicalBatches(size, -(-room // size))


def batches_of_units(expected, unit, limit=None) -> PhysicalBatches:
    """Physical batches for units, each of which draws one of them whatever the others do.

    One batch has room for a step of all units, if that is at most `limit` rows. Else units of few rows draw one of
    several batches: so many that no batch of a step is too small, but for the probability of `room_for`. A unit of more
    rows is computed alone. With others it would need much free room, and alone it needs none beside its rows.
    """
    limit = limit or max(_MOST_ROWS_OF_UNITS, unit.max_rows)
    if (room := max(unit.max_rows, room_for_units(expected, unit))) <= limit:
        return PhysicalBatches(room, 1, unit.max_rows)
    if not (shared := min(unit.max_rows, limit // _SHARE_OF_ONE)):
        return PhysicalBatches(limit, 0, 0)
    rows = expected * shared if unit.weighting == "units" else expected
    batches = -(-math.ceil(rows) // limit)
    while (size := room_for(rows / batches, shared, batches)) > limit:
        batches += -(-batches // 20)
    return PhysicalBatches(max(size, shared), batches, shared)
