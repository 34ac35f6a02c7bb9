"""`skdpgen ledger`: what was spent on a data set, fit by fit, and what is left."""

from __future__ import annotations

# Lines of fits, unless all are asked for.
_LAST = 50
# Of the releases in the table, and of the name of a model with its label.
_MOST_CHARACTERS, _MOST_OF_MODEL = 60, 140


def add(command):
    """Register the options."""
    command.add_argument("ledger", metavar="BUDGET.db", help="ledger file")
    command.add_argument("--all", action="store_true", help=f"list all fits, not the last {_LAST} alone")
    command.add_argument("--json", action="store_true", help="print one JSON object, with all fits")


def run(arguments):
    import math

    from .. import PrivacyAccountant
    from ..accounting._card import rule_of, value_of_filter

    if arguments.all and arguments.json:
        raise ValueError("--json lists all fits: leave out --all")
    accountant = PrivacyAccountant(ledger=arguments.ledger)
    found = accountant.verify()
    fits, left = accountant.fits(), accountant.remaining()
    if arguments.json:
        _print_json(arguments.ledger, found, fits, left)
        return
    shown = fits if arguments.all else fits.tail(_LAST)
    alone = fits["epsilon_alone"].sum(skipna=False)
    overstated = found["epsilon_spent"] > alone
    fixed = accountant.report().attrs["epsilon_if_fixed_in_advance"] if overstated else math.nan
    print(
        f"{arguments.ledger}: spent epsilon {found['epsilon_spent']:.4g} of {found['budget_epsilon']:g} at delta "
        f"{found['delta']:.3g} ({found['neighboring']}{_of_units(found)})"
        + (f", by the privacy filter; {fixed:.4g} if all fits had been fixed in advance" if overstated else "")
        + f"; left for one more fit: {left:.4g}"
    )
    if not found["private"]:
        print("NOT PRIVATE: a fit was made without noise, or with noise that can be repeated")
    if not len(fits):
        print("no fit was charged yet")
        return
    if len(shown) < len(fits):
        print(f"the last {len(shown)} of {len(fits):,} fits (--all lists all, --json too):")
    print(_table(shown))
    print(
        "epsilon alone is that of a fit as if it were the only one. It does not add up to the epsilon spent. share "
        "is the share of what was spent: it adds up to 100 %, whatever is left of the budget. As in a plan, it is "
        "that of the squared Gaussian-DP parameter mu." + (f" Rule: {rule_of(accountant)}." if len(fits) > 1 else "")
    )
    if overstated:
        print(
            f"The epsilon spent is more than the sum of the fits, {alone:.4g}, because it is the value of the privacy "
            f"filter: {value_of_filter(fixed)}"
        )


def _table(fits):
    import pandas as pd

    def short(text, most=_MOST_CHARACTERS):
        text = " ".join(text.split())
        return text if len(text) <= most else f"{text[: most - 3]}..."

    shown = pd.DataFrame(
        {
            "fit": range(len(fits)),
            "day (UTC)": ["unknown" if day is None else day for day in fits["day"]],
            "model": [short(model, _MOST_OF_MODEL) for model in fits["model"]],
            "releases": [short(text) for text in fits["releases"]],
            "epsilon alone": ["not computed" if value != value else f"{value:.4g}" for value in fits["epsilon_alone"]],
            "share": ["" if value != value else f"{value:.1%}" for value in fits["share"]],
            "status": fits["status"].tolist(),
        }
    )
    shown["fit"] = fits.index + 1
    return shown.to_string(index=False)


def _print_json(path, found, fits, left):
    import json
    import math

    def plain(value):
        if isinstance(value, float) and not math.isfinite(value):
            return None if math.isnan(value) else "inf"
        return value

    rows = [{name: plain(value) for name, value in row.items()} for row in fits.to_dict("records")]
    totals = {name: plain(value) for name, value in found.items()}
    print(json.dumps({"ledger": str(path), **totals, "remaining": plain(left), "fits": rows}, indent=1))


def _of_units(found):
    """Say who is protected, where that is not one row."""
    from .._types import in_words
    from ..utils.printing import one_line, printable

    return "" if found.get("unit") is None else f", {one_line(printable(in_words(found['unit'])))}"
