"""The Markdown table at the end of a benchmark: means and deviations, the papers' numbers beside them."""

from __future__ import annotations

import numpy as np

__all__ = ["summary"]


def summary(benchmark, results):
    """Mean and standard deviation over the results of one row name, published figures beside and below.

    Parameters
    ----------
    benchmark : Benchmark
    results : list of dict

    Returns
    -------
    str
        A Markdown table. Figures that no result has are left out; a published figure stands in a separate
        column, "published". Where several budgets were asked for, or another than that of the published figures, each
        has separate rows that name it.
    """
    figures = {
        field: label
        for field, label in benchmark.figure_labels().items()
        if any(_is_number(value_of(result, field)) for result in results)
    }
    groups, width = {}, len(benchmark.group_by)
    budgets = {_asked(benchmark, result) for result in results}
    at = _in_words(benchmark.published_at)
    by_budget = len(budgets) > 1 or bool(at and budgets - {at, ""})
    # figures of test rows by the paper's judge, at their budget
    tested = not any(result.get("development") or result.get("judge") == "strict" for result in results)
    published = benchmark.published if tested and (not at or budgets & {at, ""}) else {}
    beside = [field for field in figures if any(field in known for known in published.values())]
    for result in results:
        name = tuple(str(value_of(result, key)) for key in benchmark.group_by)
        name += (_asked(benchmark, result),) if by_budget else ()
        groups.setdefault(tuple("" if part == "None" else part for part in name), []).append(result)
    present = {name[0] for name in groups}  # published rows of data that were not run are left out

    def known_of(name):
        return None if at and by_budget and name[-1] not in (at, "") else published.get(name[:width])

    shown = [(name[:-1], known_of(name)) for name in groups]
    names = list(groups)
    for name, known in published.items():
        # one row of figures that stand beside none of ours
        if (len(name) < 2 or name[0] in present) and not any(
            known == other and (name[:-1] == data[: len(name) - 1]) for data, other in shown
        ):
            names.append(name)
            shown.append((name[:-1], known))
    rows = []
    for name in _in_blocks(names):
        members = groups.get(name, [])
        known = (known_of(name) if members else published.get(name)) or {}
        row = [" ".join(filter(None, name)) + (f" ({len(members)} seeds)" if len(members) > 1 else "")]
        if not members and not row[0].endswith("published"):
            row[0] += ", published"
        for field in figures:
            row.append(_cell([v for m in members if _is_number(v := value_of(m, field))]))
            if field in beside:
                row.append(_cell([known[field]] if field in known else []))
        if any(row[1:]):
            rows.append(row)
    header = [""]
    for field, label in figures.items():
        header += [label, "published"] if field in beside else [label]
    for name, known in benchmark.references.items():
        row = [name]
        for field in figures:
            row += [_cell([known[field]] if field in known else [])] + [""] * (field in beside)
        rows.append(row)
    return "\n".join("| " + " | ".join(line) + " |" for line in [header, ["---"] * len(header), *rows])


def value_of(result, field):
    """Value of a field; ``"a.b"`` is field b of field a. None if there is none."""
    for part in field.split("."):
        result = result.get(part) if isinstance(result, dict) else None
    return result


def _asked(benchmark, result):
    """The budget of a result's cell in words; empty where the rows are named by it anyway."""
    epsilon = result.get("cell", {}).get("epsilon")
    if not _is_number(epsilon) or {"epsilon", "epsilon_asked"} & set(benchmark.group_by):
        return ""
    return _in_words(epsilon)


def _in_words(epsilon):
    return "" if epsilon is None else f"at epsilon {epsilon:g}"


def _in_blocks(names):
    """Names in the order they come, those of one first part together."""
    firsts = list(dict.fromkeys(name[0] for name in names))
    return sorted(names, key=lambda name: firsts.index(name[0])) if names and len(names[0]) > 1 else names


def _is_number(value):
    return isinstance(value, float | int | np.number) and not isinstance(value, bool)


def _cell(values):
    if not values:
        return ""
    mean = f"{np.mean(values):.4g}"
    if len(values) < 2 or np.ptp(values) <= 1e-9 * abs(np.mean(values)):  # rounding is no deviation
        return mean
    return f"{mean} ± {np.std(values, ddof=1):.2g}"
