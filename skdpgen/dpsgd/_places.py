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
# Units of at most this share of a physical batch share it: with larger ones, most of its places would stay free.
_LARGEST_SHARE = 16
# A pass for one unit takes the time of so many rows of a large one (measured for layers of 100 to 500 outputs: 40).
_ROWS_OF_A_PASS = 32


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


def room_for_units(expected, unit, batches=1) -> int:
    """Places for the rows of records, or of units, that take part independently: see `room_for`.

    `expected`: mean sum of the weights of the rows. Where each row counts 1, it is the mean number of rows. Where each
        unit counts 1, it is the mean number of units, each of which has up to `max_rows` rows.
    `batches`: as in `room_for`.
    """
    if unit is None:
        return room_for(expected, batches=batches)
    return room_for(expected * unit.max_rows if unit.weighting == "units" else expected, unit.max_rows, batches)


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
    """Physical batches for units: each of few rows draws one of them whatever the others do, larger ones are alone.

    With others, a unit of many rows would need much free room. Alone, it needs none beside its rows, and the time of a
    pass. So the number of rows up to which units share batches is the one for which a step takes the least time.
    """
    limit = limit or max(_MOST_ROWS_OF_UNITS, unit.max_rows)
    if (room := max(unit.max_rows, room_for_units(expected, unit))) <= limit:
        best = PhysicalBatches(room, 1, unit.max_rows)
    else:
        best = PhysicalBatches(limit, 0, 0)
    least, most = _cost(best, expected, unit), min(unit.max_rows, limit // _LARGEST_SHARE)
    for shared in sorted({most, *(2**i for i in range(most.bit_length()))} - {0, best.shared}):
        batches = _shared_batches(expected, unit, limit, shared)
        if (cost := _cost(batches, expected, unit)) < least:
            best, least = batches, cost
    return best


def _shared_batches(expected, unit, limit, shared) -> PhysicalBatches:
    """As many batches for units of at most `shared` rows as they need, so that each has at most `limit` places."""
    rows = expected * shared if unit.weighting == "units" else expected
    number = -(-math.ceil(rows) // limit)
    while (size := room_for(rows / number, shared, number)) > limit:
        number += -(-number // 20)
    return PhysicalBatches(max(size, shared), number, shared)


def _cost(batches, expected, unit) -> float:
    """Time of a step in rows: all places, and the passes for units of more than `shared` rows.

    Where each row counts 1, there are at most ``expected / (shared + 1)`` of them. Else nothing public says how many
    there are, and this share of the units is a guess.
    """
    alone = 0 if batches.shared == unit.max_rows else expected / (batches.shared + 1)
    return batches.size * batches.number + alone * _ROWS_OF_A_PASS
