"""The layout of a CSV file, checked before its values are read: encoding, names of columns, number of fields."""

from __future__ import annotations

import codecs
import csv
import gzip
import itertools
import re
import zlib
from collections import Counter

from ..exceptions import InvalidInputError
from .csv_values import DATE, NUMBER
from .notation import USUAL_NOTATION

# Errors of files that cannot be read, of damaged .gz files among them.
UNREADABLE = (csv.Error, OSError, EOFError, zlib.error)
# Lines that show whether the lines above them are a title.
_PEEKED = 20
_MARKS = ",;\t|"
# Lines at the end of a file that may be a footer.
_FOOTER = 10


def open_text(path, notation):
    """Open a file of text below the lines that are skipped."""
    open_ = gzip.open if path.suffix == ".gz" else open
    file = open_(path, "rt", encoding=notation.codec, newline="")
    try:
        for _ in range(notation.skip_lines):
            file.readline()
    except BaseException:
        file.close()
        raise
    return file


def is_utf8(path):
    """Whether all bytes of a CSV file are UTF-8; not of a damaged one, which `read_table` refuses."""
    try:
        with open_text(path, USUAL_NOTATION) as file:
            while file.read(2**20):
                pass
    except (UnicodeError, *UNREADABLE):
        return False
    return True


def wrong_encoding(path, notation):
    """The refusal of a file with bytes that are no text."""
    if notation.codec != "utf-8-sig":
        return InvalidInputError(f"{path}: not {notation.encoding}; give another --encoding")
    with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
        mark = file.read(2)
    if mark in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return InvalidInputError(f"{path}: not UTF-8, but UTF-16: give --encoding utf-16")
    return InvalidInputError(
        f"{path}: not UTF-8: give its encoding, as --encoding cp1252 (Windows) or --encoding latin-1, or save it as "
        "UTF-8"
    )


def header_of(file, separator):
    """Return the first row of an open file that is not empty, or None, and the reader of the rows below it."""
    rows = csv.reader(file, delimiter=separator, skipinitialspace=separator == ",")
    return next(filter(None, rows), None), rows


def check_layout(path, notation):
    """Refuse a file without rows, with rows of different lengths, or with a header that does not name the columns.

    pandas fills short rows with missing values, and uses the first column as the index if rows are too long.
    """
    separator, skipped = notation.separator_of(path), notation.skip_lines
    with open_text(path, notation) as file:
        while text := file.read(2**20):
            if "\0" in text:
                raise InvalidInputError(
                    f"{path}: contains the character NUL, which is no text: remove it, or give another --encoding, "
                    "such as utf-16"
                )
    with open_text(path, notation) as file:
        header, rows = header_of(file, separator)
        if header is None:
            raise InvalidInputError(f"{path}: the file is empty" + (f" below line {skipped}" if skipped else ""))
        start, width = rows.line_num, len(header)
        others = [mark for mark in _MARKS if mark != separator and notation.separator is None]
        check_separator(path, header, notation)
        _check_header(path, header, notation.numeric_names, skipped + start)
        for row in rows:
            if row and len(row) != width:
                line = skipped + rows.line_num
                hint = _title_hint(path, notation, [separator, *others]) if len(row) > width else _footer_hint(rows)
                fields = "1 field" if len(row) == 1 else f"{len(row)} fields"
                raise InvalidInputError(f"{path}: line {line} has {fields} where the header has {width}{hint}")
        if rows.line_num == start:
            raise InvalidInputError(f"{path}: a header and no rows")


def check_separator(path, header, notation):
    """Refuse a header of one name if another separator, or a title above the names, explains it."""
    if len(header) > 1:
        return
    separator = notation.separator_of(path)
    others = [mark for mark in _MARKS if mark != separator]
    sought = others if notation.separator is None else [separator]
    if hint := _title_hint(path, notation, sought):
        raise InvalidInputError(
            f"{path}: one column{hint}"
            + (f"; else give --separator {separator!r}" if notation.separator is None else "")
        )
    if found := [mark for mark in others if mark in header[0]]:
        raise InvalidInputError(
            f"{path}: one column, whose header contains {found[0]!r}: if that separates the fields, give "
            f"--separator {_name(found[0])!r}; else rename the column"
        )


def _title_hint(path, notation, marks):
    """What to do if the first lines are a title: those below have more fields, and the same number each; else "".

    `marks` are the separators that may divide the fields.
    """
    with open_text(path, notation) as file:
        counted = enumerate(file, notation.skip_lines + 1)
        numbers, texts = zip(*itertools.islice(((n, text) for n, text in counted if text.strip()), _PEEKED))
    found = {}
    for mark in marks:
        counts = [text.count(mark) for text in texts]
        first = next((k for k in range(len(counts)) if len(set(counts[k:])) == 1), 0)
        if 0 < first < len(counts) - 1 and max(counts[:first]) < counts[-1]:
            found[mark] = first
    if not found:
        return ""
    mark = min(found, key=found.get)
    line, name = numbers[found[mark]], _name(mark)
    usual = mark == notation.separator_of(path)
    divided, option = ("", "") if usual else (f"{name!r} separates the fields, and ", f"--separator {name!r} ")
    above = "line 1 is a title" if line == 2 else f"the lines above line {line} are a title"
    return f": if {divided}{above}, give {option}--skip-lines {line - 1}"


def _footer_hint(rows):
    """What to do if a row that is too short is among the last ones of the file, which `rows` reads on; else ""."""
    if len(list(itertools.islice(rows, _FOOTER))) == _FOOTER:
        return ""
    return ": if the last lines of the file are a footer, such as totals or a source, delete them"


def _name(mark):
    """A separator, as the option takes it."""
    return "tab" if mark == "\t" else mark


def _check_header(path, header, numeric_names, line):
    if header.count("") > max(1, len(header) / 2):
        raise InvalidInputError(
            f"{path}: line {line} names {len(header) - header.count('')} of {len(header)} columns: if it is a title, "
            f"and the names are below it, give --skip-lines {line}; else name the columns"
        )
    if "" in header:
        raise InvalidInputError(
            f"{path}: column {header.index('') + 1} has no name: if it is an index, which would identify rows, "
            "write the file without it; else name it"
        )
    duplicates = sorted(name for name, count in Counter(header).items() if count > 1)
    if duplicates:
        raise InvalidInputError(f"{path}: duplicate column names: {', '.join(map(repr, duplicates))}; rename them")
    values = [name for name in header if re.fullmatch(f"{NUMBER}|{DATE}.*", name.strip())]
    counted = len(header) > 2 and all(name == str(k) for k, name in enumerate(header))  # as pandas counts columns
    if values and not (numeric_names or counted):
        raise InvalidInputError(
            f"{path}: the name of column {header.index(values[0]) + 1} is a number or a date: if the first line is "
            "a row, add a line of names above it, because names are published; if it is a line of names, give --header"
        )
