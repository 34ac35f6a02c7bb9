"""How files are written, on the command line: what a schema declares of it, and columns in another notation."""

from __future__ import annotations

import re
from pathlib import Path

from ..utils.printing import say

# Entries of `Schema.notation`: the option, and the parameter of `Notation`.
_ENTRIES = {
    "separator": ("separator", "separator"),
    "decimal": ("decimal", "decimal"),
    "thousands": ("thousands", "thousands"),
    "signs": ("sign", "signs"),
    "missing": ("missing", "missing_marks"),
    "encoding": ("encoding", "encoding"),
    "skip_lines": ("skip_lines", "skip_lines"),
    "header": ("header", "numeric_names"),
}
# Those that say how numbers are written.
_OF_NUMBERS = ("decimal", "thousands", "signs")


def reading(arguments, schema=None, path=None):
    """Return the notation of a file that the options of `add_reading` and a schema give; an option decides.

    `path`: of the file. A Parquet file has types, and no notation of a schema; a ``.tsv`` file has tabs.
    """
    from ..data.notation import Notation
    from ..data.sources import is_parquet

    given = _given(arguments)
    declared = {} if schema is None or schema.notation is None else dict(schema.notation)
    if path is not None and is_parquet(Path(path)):
        declared = {}
    elif path is not None and ".tsv" in Path(path).suffixes[-2:]:
        declared.pop("separator", None)
    return _checked(Notation, declared, given, dates=arguments.dates)


def _given(arguments):
    """What the options say, by the entries of a schema."""
    given = {entry: getattr(arguments, option, None) for entry, (option, _) in _ENTRIES.items()}
    return {entry: value for entry, value in given.items() if value is not None and value is not False and value != []}


def say_differences(arguments, schema):
    """Say which options replace what the schema declares of the notation."""
    given, declared = _given(arguments), {} if schema is None or schema.notation is None else schema.notation
    if differ := [name for name in given if name in declared and given[name] != declared[name]]:
        options = ", ".join(f"--{_ENTRIES[name][0].replace('_', '-')}" for name in differ)
        say(f"the schema declares another notation; used is that of the options: {options}")


def _checked(kind, declared, given, **others):
    """The notation; what is wrong with it is said with where it comes from."""
    from ..exceptions import InvalidInputError

    values = {_ENTRIES[name][1]: value for name, value in {**declared, **given}.items()}
    try:
        return kind(**values, **others)
    except InvalidInputError as error:
        if not declared:
            raise
        known = ", ".join(f"{name} {value!r}" for name, value in declared.items())
        raise InvalidInputError(
            f"{error}; the schema declares {known}: an option replaces an entry, or change it in the file of the schema"
        ) from None


def writing(arguments, schema):
    """Return the notation in which `skdpgen sample` writes rows: its options, else that of the schema of the fit."""
    from ..data.notation import Notation
    from ..data.sources import is_parquet

    declared = {} if schema is None or schema.notation is None else schema.notation
    written = ("separator", "decimal", "missing")
    declared = {name: value for name, value in declared.items() if name in written}
    if is_parquet(Path(arguments.output)):
        declared = {}
    given = {"separator": arguments.separator, "decimal": arguments.decimal}
    if arguments.missing is not None:
        given["missing"] = [arguments.missing] if arguments.missing else []
    return _checked(Notation, declared, {name: value for name, value in given.items() if value is not None})


def declared_notation(notation):
    """Return the entries of a schema that declare a notation: those that are not usual; None: all are.

    The formats of dates are those of columns.
    """
    from ..data.notation import USUAL_NOTATION

    found = {}
    for entry, (_, name) in _ENTRIES.items():
        value = getattr(notation, name)
        if value != getattr(USUAL_NOTATION, name):
            found[entry] = list(value) if isinstance(value, tuple) else value
    return found or None


def number_in(text, declared=None):
    """Return the number that an option names: with a decimal point, or in the notation that a schema declares.

    `declared`: `notation` of the schema. None is returned for other texts. Raises ValueError: both read another number.
    """
    from ..data.notation import Notation

    try:
        plain = float(text)
    except ValueError:
        plain = None
    marks = {_ENTRIES[name][1]: (declared or {})[name] for name in _OF_NUMBERS if name in (declared or {})}
    found = Notation(**marks).numbers_of([text]) if marks else []
    if plain is not None and found and found[0] != plain:
        raise ValueError(
            f"{text!r} is {found[0]:.15g} in the notation of the file, and {plain:.15g} with a decimal point: for the "
            f"first write {found[0]:.15g}, for the second {f'{plain:.15g}'.replace('.', declared.get('decimal', '.'))}"
        )
    return found[0] if plain is None and found else plain


def date_in(text, form=None):
    """Return the date that an option names, in ISO 8601; what is no date stays as it is.

    `form`: format of the column, which may lack its time of the day here; None: a date is in ISO 8601.
    """
    import pandas as pd

    from ..tabular._formats import form_of_strptime

    if form is None:
        return text
    plain = pd.to_datetime(text, format="ISO8601", errors="coerce") if re.match(r"\s*\d{4}-", text) else pd.NaT
    for known in (form, re.split("[T :]?%[HI]", form)[0]):
        moment = pd.to_datetime(text, format=form_of_strptime(known), errors="coerce")
        if not pd.isna(moment) and not pd.isna(plain) and moment != plain:
            raise ValueError(
                f"{text!r} is {moment:%d %B %Y} in the format of the column, {form}, and {plain:%d %B %Y} in ISO 8601: "
                "write it with the time of the day, in one of them, as in 2020-12-31T00:00"
            )
        if not pd.isna(moment):
            return moment.isoformat()
    return text


def refuse_notations(settled, found):
    """Refuse columns of text whose values look like numbers or dates in another notation, before anything is charged.

    `settled`: columns that are declared as categories or keys. `found`: of `refusal_of_file`.
    """
    from ..data.other_notations import refusal_of_file
    from ..exceptions import InvalidInputError

    if found := {name: reading for name, reading in found.items() if name not in settled}:
        raise InvalidInputError(refusal_of_file(found))
