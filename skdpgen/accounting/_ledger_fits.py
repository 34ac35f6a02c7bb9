"""The ledger fit by fit: when it was charged, what, and what it costs alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..utils.printing import printable
from ._filter import Entry, PrivacyFilter
from ._pricing import MOST_WORK, epsilon_pld, work_alone
from ._renyi import rdp_at

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["fits_frame"]

_COLUMNS = ["day", "model", "releases", "epsilon_alone", "share", "status"]


def fits_frame(entries: Sequence[Entry], rule: PrivacyFilter) -> pd.DataFrame:
    """Return one row for each charge; see `PrivacyAccountant.fits`."""
    import pandas as pd

    epsilons, rdps, left, rows = {}, [], MOST_WORK, []
    for entry in entries:
        charge = entry.charge
        key = (charge.releases, charge.extra_delta)
        if key not in epsilons:
            left -= work_alone(charge, rule.neighboring) if left > 0 else 0.0
            epsilons[key] = epsilon_pld(charge, rule.delta, rule.neighboring) if left > 0 else math.nan
        model, _, releases = printable(charge.label).partition(": ")
        rdps.append(math.nan if rule.alpha is None else rdp_at(charge.releases, rule.alpha, rule.neighboring))
        rows.append((entry.day, model, releases, epsilons[key], math.nan, entry.status))
    frame = pd.DataFrame(rows, columns=_COLUMNS)
    total = math.fsum(rdps)
    frame["share"] = [rdp / total if 0 < total < math.inf else math.nan for rdp in rdps]
    return frame
