"""The sections on single values: categories that were lost, and combinations that no real row has."""

from __future__ import annotations

from .. import metrics
from ._page import details, leak, paragraph, section, table

# Rows of a table that are shown at once, and at most.
_AT_ONCE, _MOST = 20, 300
# An expected number of rows from which on chance alone hardly ever loses a category, or a combination.
_BY_CHANCE = 10


def lost_section(lost, n_categories, sizes):
    """Return the section on categories of the real rows that no synthetic row has.

    `lost`: as `lost_categories` gives it, of all rows. `n_categories`: number of columns of categories. `sizes`:
    numbers of real and synthetic rows.
    """
    if not n_categories:
        return section("lost", "Lost categories", paragraph("No column holds categories."))
    if not len(lost):
        words = f"None: each category of the {n_categories:,} columns of categories occurs in the synthetic rows."
        return section("lost", "Lost categories", paragraph(words), leak(metrics.lost_categories))
    columns = lost["column"].nunique()
    notable = int((lost["expected"] >= _BY_CHANCE).sum())
    words = [
        f"{_many(len(lost), 'category', 'categories')} of {_many(columns, 'column')} in the {sizes[0]:,} real rows "
        f"{'is' if len(lost) == 1 else 'are'} in none of the {sizes[1]:,} synthetic ones. "
        + _by_chance(notable, len(lost)),
        "A private model must lose or blur rare categories: a category of a few people would reveal them. Whether that "
        "matters depends on the use.",
    ]
    rows = [(str(n), str(v)[:120], int(r), float(e)) for n, v, r, e in lost.head(_MOST).itertuples(index=False)]
    header = ("column", "category", "real rows", "synthetic rows expected")
    parts = _folded("Lost categories, the commonest first", header, rows, len(lost))
    return section("lost", "Lost categories", *map(paragraph, words), *parts, leak(metrics.lost_categories))


def _by_chance(notable, total):
    if not notable:
        return f"Fewer than {_BY_CHANCE} synthetic rows of each were to be expected: chance alone may lose it."
    which = "all" if notable == total else f"{notable:,}"
    return f"Of {which}, {_BY_CHANCE} synthetic rows or more were to be expected: chance did not lose these."


def combinations_section(found, half, n_columns, sizes):
    """Return the section on pairs of values that synthetic rows have and no real row.

    `found`, `half`: of the synthetic rows beside the real ones, and of one half of the real rows beside the other.
    `n_columns`: number of columns whose pairs were searched.
    `sizes`: numbers of real and synthetic rows that were searched.
    """
    title = "Impossible combinations"
    if n_columns < 2:
        return section("combinations", title, paragraph("One column has no pairs."))
    hold = f"{found.share:.2%} hold" if found.count else "none holds"
    words = [
        f"Of {sizes[1]:,} synthetic rows, {hold} a pair of values that none of {sizes[0]:,} real rows has. Of one half "
        f"of the real rows, {half.share:.2%} hold a pair that the other half lacks: chance alone gives about as many. "
        "Numbers and dates are cut into up to ten bins of about equally many real rows."
    ]
    if not found.count:
        return section("combinations", title, *map(paragraph, words), leak(metrics.unseen_pairs))
    notable = found.pairs[found.pairs["expected"] >= _BY_CHANCE]
    words.append(
        f"There are {found.count:,} such pairs of values. Where the last column is large, the two values are frequent "
        "and yet never together: very likely they exclude each other, and the synthetic rows break a rule. Declare "
        "such rules as constraints of the synthesizer. Where it is small, the pair is merely rare."
    )
    where = found.columns.head(10)
    rows = [
        (f"{first} and {second}", int(made), int(count)) for first, second, count, made in where.itertuples(index=False)
    ]
    places = table("Columns in which they are", ("columns", "synthetic rows", "combinations"), rows)
    listed = (notable if len(notable) else found.pairs).head(_MOST)
    rows = [
        (f"{first} = {str(value)[:60]} and {second} = {str(other)[:60]}", int(made), int(a), int(b), float(expected))
        for first, value, second, other, made, a, b, expected in listed.itertuples(index=False)
    ]
    header = ("combination", "synthetic rows", "real rows with the first", "with the second")
    header += ("real rows expected, if unrelated",)
    caption = "Combinations in synthetic rows, never in real ones"
    caption += f" ({_BY_CHANCE} or more expected)" if len(notable) else ""
    parts = _folded(caption, header, rows, len(notable) if len(notable) else found.count)
    return section("combinations", title, *map(paragraph, words), places, *parts, leak(metrics.unseen_pairs))


def _folded(caption, header, rows, total):
    """The first rows of a table, the others folded away."""
    parts = [table(caption, header, rows[:_AT_ONCE])]
    if len(rows) > _AT_ONCE:
        left = f"The next {len(rows) - _AT_ONCE:,} of {total:,}"
        parts.append(details(left, table(left, header, rows[_AT_ONCE:])))
    return parts


def _many(count, noun, nouns=None):
    return f"{count:,} {noun if count == 1 else nouns or noun + 's'}"
