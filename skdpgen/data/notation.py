"""How the file of a table is written: one object, which every function that reads or writes it takes."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

import pandas as pd

from ..exceptions import InvalidInputError
from ..tabular._formats import NO_ZONES, has_zone, is_date_format

# Patterns of the mark of thousands; a space may be a no-break space or a narrow one.
_MARKS = {".": r"\.", ",": ",", "'": "['\u2019]", "space": "[ \u00a0\u202f]"}
# Of accounts, (26.42) is negative, and programs write other dashes than the minus of a keyboard: U+2212 is a minus too.
NEGATIVE_MARKS = "()\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe63\uff0d"
AS_NEGATIVE = "write negative numbers with a leading - first, such as -26.42"
_SEPARATORS = {"tab": "\t", "\\t": "\t"}


@dataclass(frozen=True)
class Notation:
    """The notation of a file: of its numbers, dates and missing values, and of a CSV file as a whole.

    Raises InvalidInputError: one of them is none of these, or both marks of numbers are the same.
    """

    decimal: str = "."  # "." or ","
    # "." or "," or "'" or "space"; mark between groups of three digits. None: there are no groups.
    thousands: str | None = None
    # sequence of str; formats of `datetime.strptime` with a year, in addition to ISO 8601. A column whose texts all
    # have one of these formats is a column of dates.
    dates: tuple = ()
    # sequence of str; texts before or after numbers that are left out, such as "$", "%" or "EUR": 12% is 12
    signs: tuple = ()
    # sequence of str; texts that stand for a missing value, in addition to the empty field. The first one is written.
    missing_marks: tuple = ()
    # separator of fields: one character, or "tab". None is a tab for ``.tsv``, else a comma.
    separator: str | None = None
    # name of the encoding, as Python knows it; None is UTF-8, with or without a byte order mark
    encoding: str | None = None
    skip_lines: int = 0  # number of lines above the header, such as a title
    # whether numbers and dates in the header are column names. False refuses them: names are published, and such a line
    # may be a row.
    numeric_names: bool = False

    def __post_init__(self):
        for name in ("dates", "signs", "missing_marks"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        object.__setattr__(self, "separator", _SEPARATORS.get(self.separator, self.separator))
        self._check_values()
        if self.skip_lines < 0:
            raise InvalidInputError(f"--skip-lines must be 0 or more; got {self.skip_lines}")
        try:
            "".encode(self.codec)  # some codecs are not of text
        except (LookupError, ValueError):
            raise InvalidInputError(
                f"--encoding must be utf-8, latin-1, cp1252 or the like; got {self.encoding!r}"
            ) from None
        if self.separator is not None and (len(self.separator) != 1 or self.separator in '"\r\n'):
            raise InvalidInputError(f'the separator must be one character, or "tab"; got {self.separator!r}')

    def _check_values(self):
        """Refuse marks of numbers, and formats of dates."""
        if self.decimal not in (".", ","):
            raise InvalidInputError(f"the decimal mark must be . or ,; got {self.decimal!r}")
        if self.thousands is not None and (self.thousands not in _MARKS or self.thousands == self.decimal):
            raise InvalidInputError(
                f"the mark of thousands must be . or , or ' or space, and not the decimal mark; got {self.thousands!r}"
            )
        for sign in self.signs:
            if any(mark in sign for mark in NEGATIVE_MARKS):
                raise InvalidInputError(
                    "parentheses and dashes mark negative numbers, and a number without its sign would be positive: "
                    f"{AS_NEGATIVE}; got the sign {sign!r}"
                )
            if not sign.strip() or re.search(r"[\d.,'+-]", sign):
                raise InvalidInputError(
                    f"a sign must be text such as $, % or EUR, without digits and marks of numbers; got {sign!r}"
                )
        for form in self.dates:
            if not is_date_format(form):
                raise InvalidInputError(
                    f"a format of dates must be one of strptime, with a year, such as %d.%m.%Y; got {form!r}"
                    + (f". {NO_ZONES}" if has_zone(form) else "")
                )

    # ---- the file --------------------------------------------------------------------------------------------------
    @property
    def codec(self):
        """Name of the encoding for `open`: UTF-8 may have a byte order mark."""
        name = "utf-8" if self.encoding is None else codecs.lookup(self.encoding).name
        return "utf-8-sig" if name == "utf-8" else name

    def separator_of(self, path):
        """Separator of the fields of a file: the given one, or the usual one of its suffix."""
        return self.separator or ("\t" if ".tsv" in path.suffixes[-2:] else ",")

    # ---- its numbers -----------------------------------------------------------------------------------------------
    @property
    def plain(self):
        """Whether numbers have a decimal point, and no sign or mark of thousands."""
        return self.decimal == "." and self.thousands is None and not self.signs

    @property
    def number(self):
        """Pattern of one number."""
        point = re.escape(self.decimal)
        whole = r"\d+" if self.thousands is None else rf"(?:\d{{1,3}}(?:{_MARKS[self.thousands]}\d{{3}})+|\d+)"
        digits = rf"(?:{whole}(?:{point}\d*)?|{point}\d+)(?:[eE][+-]?\d+)?"
        if not self.signs:
            return rf"[+-]?{digits}"
        sign = self._sign
        return rf"(?:(?:{sign}\s?)?[+-]?|[+-]{sign}\s?){digits}(?:\s?{sign})?"

    @property
    def _sign(self):
        return rf"(?:{'|'.join(re.escape(sign.strip()) for sign in self.signs)})"

    def to_plain(self, written):
        """Rewrite a column of such numbers with a decimal point, and without signs and marks of thousands."""
        if self.signs:
            written = written.str.replace(self._sign, "", regex=True).str.strip()
        if self.thousands is not None:
            written = written.str.replace(_MARKS[self.thousands], "", regex=True)
        return written.str.replace(self.decimal, ".", regex=False)

    def numbers_of(self, texts):
        """Return the numbers among texts, a list of float."""
        written = pd.Series(list(texts), dtype="string").str.strip()
        return [float(text) for text in self.to_plain(written[written.str.fullmatch(self.number)])]


USUAL_NOTATION = Notation()
