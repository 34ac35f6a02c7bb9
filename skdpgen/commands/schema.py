"""`skdpgen schema`: write a schema to edit; on a terminal, ask what is public of each column."""

from __future__ import annotations

import csv
import functools
import itertools
import os
import re
import shlex
import sys
import warnings
from dataclasses import replace
from pathlib import Path

from ..utils.printing import say
from ._arguments import add_constraint, add_dropping, add_reading, add_repeated, columns_of, names_of, options
from ._notations import date_in, declared_notation, number_in, reading, refuse_notations

# File of the answers, where none is named and stdout is a terminal too.
_OUTPUT = "schema.json"
# Numbers of different values of a scale of answers.
_SCALES = range(3, 12)
# Options that name columns, and what these are.
_COLUMNS_THAT_ARE = {
    "--id": "keys of rows or persons: their values are never read, and a sample has fresh keys; NAME=P-#### gives "
    "their form, with # for a counter",
    "--number-in-unit": "numbers of the rows of a person, such as a visit number: their values are never read, and the "
    "rows of a synthetic person (--units) are numbered from 1; they need a fit with --unit",
    "--categorical": "categorical although their values are numbers, such as codes",
}


def add(command):
    """Register the options."""
    command.add_argument("input", metavar="INPUT", help="CSV or Parquet file")
    add_reading(command)
    add_repeated(
        command,
        "--public COLUMN",
        "declare that the bounds or categories of this column in the file are public ('*' for all columns)",
    )
    command.add_argument(
        "--target",
        metavar="COLUMN",
        help="column of the class label: if it contains whole numbers, it is then categorical, as in a fit without a "
        "schema",
    )
    for option, what in _COLUMNS_THAT_ARE.items():
        add_repeated(command, f"{option} A,B", f"columns that are {what}")
    add_repeated(
        command,
        "--hierarchy COLUMN=N,M",
        "codes whose first N, and first M, characters are groups, as in ICD-10: where a code is too rare to be "
        "learned, its first characters are",
    )
    add_repeated(
        command,
        "--categories COLUMN=LIST.csv",
        "declare all codes of this column: the first field of each line of a public file (not of your rows), such as a "
        "list of municipalities; a first line with the name of the column is a header. A short list needs no file: "
        "sex=f,m",
    )
    add_repeated(
        command,
        "--bounds COLUMN=LOW..HIGH",
        "public bounds of a column of numbers or dates, such as age=0..120",
    )
    add_constraint(
        command,
        also="",
        more="; a mapping may stand in a public CSV file, whose first line names both columns: "
        "'region == {regions.csv}[postcode]'",
    )
    add_dropping(command)
    command.add_argument(
        "--no-questions",
        action="store_true",
        help="ask nothing: facts that no option declares stay open (default: on a terminal, for stdin and stderr, the "
        "command asks about each open column)",
    )
    command.add_argument(
        "--output", metavar="S.json", help=f"schema to write (default: stdout; after questions, {_OUTPUT})"
    )


def run(arguments):
    from ..data.sources import is_parquet
    from ..data.table_reading import read_table
    from ..data.table_writing import check_apart, check_output
    from ._questions import Terminal, ask_about, declare_public, on_terminal

    terminal = None if arguments.no_questions or not on_terminal() else Terminal()
    output = arguments.output
    if output is None and terminal is not None and sys.stdout.isatty():
        output = _OUTPUT
    if output:
        check_output(output)
        check_apart(arguments.input, output)
    notation, left_out = reading(arguments), []
    if arguments.drop:
        left_out = names_of(arguments.drop, columns_of(arguments.input, notation), "--drop")
    frame = read_table(arguments.input, notation, left_out=left_out, refuse=_refusal(arguments, notation, left_out))
    schema, target = _settled(arguments, frame, notation), arguments.target
    constraints = _constraints(arguments, schema, notation)
    limits = _with_limits(arguments, notation, schema)
    public = list(schema) if "*" in arguments.public else arguments.public
    if terminal is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it comes with the schema that is written
            declare_public(schema, frame, public)  # refused before the first question
        try:
            marks = not is_parquet(Path(arguments.input))
            answers = ask_about(schema, frame, terminal, target, public, limits, marks)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("interrupted; no schema was written") from None
        schema, left_out, frame = answers.schema, [*left_out, *answers.left_out], answers.frame
        if answers.missing:
            notation = replace(notation, missing_marks=(*(notation.missing_marks or ("",)), *answers.missing))
        if fills := _fills_empty_fields(arguments, notation, frame):
            terminal.say(fills)
        public = [name for name in answers.public if name in schema]
        if output and arguments.output is None:
            output = _new_file(output, terminal, arguments.input)
    schema = replace(declare_public(schema, frame, public), notation=declared_notation(notation))
    schema = schema.constrain(*constraints)
    units = _say_what_to_do(arguments, schema, frame, notation, limits) if terminal is None else []
    if output:
        schema.save(output)
        print(f"schema of {len(schema)} columns written to {output}")
    else:
        print(schema.to_json())
    if terminal is not None:
        _say_what_comes_next(arguments, output or _OUTPUT, answers.target, answers.unit, left_out)
    elif output:
        _say_for_whom(units)
        _say_what_comes_next(arguments, output, arguments.target, next(iter(units), None), left_out)


def _constraints(arguments, schema, notation):
    """The texts of ``--constraint``, with the mappings of files in full; they are checked with the schema."""
    from ..tabular._constraint_forms import read_constraint
    from ..tabular._identifiers import split_keys
    from ._mapping_files import with_mappings

    texts = with_mappings(arguments.constraint, schema, notation.separator or ",")
    schema.constrain(*texts)  # identifiers, and the size of all of them together
    modelled, _ = split_keys(schema)
    for text in texts:
        read_constraint(text, modelled.names).check(modelled)
    return texts


def _refusal(arguments, notation, left_out):
    """What refuses columns in another notation, but those that are declared as categories or keys."""
    if not (arguments.categorical or arguments.id or arguments.number_in_unit or arguments.categories):
        return functools.partial(refuse_notations, ())
    names = [name for name in columns_of(arguments.input, notation) if name not in left_out]
    settled = [*_patterns(arguments.id, names), *names_of(arguments.categorical, names, "--categorical")]
    settled += [*names_of(arguments.number_in_unit, names, "--number-in-unit"), *_lists(arguments.categories, names)]
    return functools.partial(refuse_notations, settled)


def _new_file(path, terminal, source):
    """Name of the file to write, which the person at the terminal may choose where it exists."""
    from ..data.table_writing import check_apart, check_output

    while Path(path).exists():
        terminal.say(f"{path} exists: Enter replaces it; or type another name")
        if not (answer := terminal.ask("file")):
            break
        try:
            check_output(answer)
            check_apart(source, answer)
            path = answer
        except ValueError as error:
            terminal.say(str(error))
    return path


def _say_what_to_do(arguments, schema, frame, notation, limits):
    """Say what to check and what the rows suggest; return the columns of persons that may have several rows."""
    from ..tabular import Categorical, Identifier, Numeric
    from ._hints import code_systems, likely_units, two_numbers

    say(
        "the schema declares the names and kinds of the columns as public. Check them. Replace null by bounds "
        'or categories that are public knowledge, such as [0, 120], ["2020-01-01", "2024-12-31"] or ["yes", "no"]; '
        'what stays null is learned, and charged. Set "missing" to false for a column that cannot have missing values'
    )
    modelled = frame.drop(columns=[name for name in frame.columns if isinstance(schema[name], Identifier)])
    units = [name for name in likely_units(modelled) if name != arguments.target]
    found = _point_out(arguments, schema, units)
    found["number_in_unit"] += _point_out_values(modelled, units)
    _point_out_limits(arguments, limits)
    if fills := _fills_empty_fields(arguments, notation, frame):
        say(fills)
    settled = [name for name in modelled.columns if getattr(schema[name], "hierarchy", None) is not None]
    hierarchies = code_systems(modelled.drop(columns=[*settled, *units, *two_numbers(modelled)]))
    numbers = [name for name in modelled.columns if isinstance(schema[name], Numeric) and schema[name].bounds is None]
    _point_out_scales(modelled, [name for name in numbers if schema[name].integer and name not in units])
    codes = [name for name in modelled.columns if isinstance(schema[name], Categorical)] + found["categorical"]
    for option, names in _point_out_columns(modelled, numbers, codes, units, hierarchies).items():
        found[option] += names
    _say_in_one_command(arguments, found, units, hierarchies, empty_first=fills is not None)
    if schema.notation is not None:
        say(
            f"the schema stores how the file is written ({_notation(arguments).strip()}): synthesize and "
            "report need no such options with this schema, and synthetic rows are written in the same way"
        )
    return units


def _point_out_scales(frame, names):
    """Say which of some columns of whole numbers may be answers on a scale, whose ends are public."""
    if found := [name for name in names if _is_scale(frame[name])]:
        say(
            f"whole numbers of few different values, as of answers on a scale: {', '.join(map(str, found))}. If the "
            "ends of the scale are public, declare them; else an end with few answers may be lost: --bounds "
            f"{shlex.quote(f'{found[0]}=LOW..HIGH')}"
        )


def _is_scale(values):
    return values.nunique() in _SCALES and values.max() - values.min() <= _SCALES[-1]


def _say_in_one_command(arguments, found, units, hierarchies, *, empty_first):
    """Print the command that takes all that was suggested, and what was asked of this one.

    `found`: names by option; the first option that has a name takes it. `units`: stay as they are, for ``--unit``.
    `hierarchies`: numbers of first characters, by column. `empty_first`: whether ``--missing ''`` is to be the first.
    """
    taken, given = list(units), {}
    for option, names in found.items():
        given[option] = [name for name in dict.fromkeys(names) if name not in taken and name != arguments.target]
        taken += given[option]
    without = [name for name in taken if name not in given["categorical"]]
    groups = [f"{name}={_comma(lengths)}" for name, lengths in hierarchies.items() if name not in without]
    if not (any(given.values()) or groups or empty_first):
        return
    text = options(public=arguments.public, target=arguments.target)
    for option, names in given.items():
        text += options(**{option: [*getattr(arguments, option), *([_comma(names)] if names else [])]})
    asked = {option: [one for one in getattr(arguments, option) if one.partition("=")[0] not in taken] for option in
             ("hierarchy", "categories", "bounds")}  # fmt: skip
    text += options(hierarchy=[*asked["hierarchy"], *groups], categories=asked["categories"], bounds=asked["bounds"])
    text += options(constraint=arguments.constraint)
    text += " --no-questions" * arguments.no_questions + options(output=arguments.output)
    say(
        "all of these suggestions in one command, from which you can take out what is wrong: skdpgen schema "
        f"{shlex.quote(arguments.input)}{_notation(arguments, dates=True, empty_first=empty_first)}{text}"
    )


def _notation(arguments, *, dates=False, empty_first=False):
    """The options of this command that say how the file is written, for this command again; the schema has them too."""
    text = options(
        missing=list(dict.fromkeys([*[""] * empty_first, *arguments.missing])),
        separator=arguments.separator,
        thousands=arguments.thousands,
        decimal=arguments.decimal,
        sign=arguments.sign,
        dates=arguments.dates if dates else None,
        encoding=arguments.encoding,
        skip_lines=arguments.skip_lines,
    )
    return text + (" --header" if arguments.header else "")


def _say_for_whom(units):
    """Say what --unit in the next commands is for: the rows suggest it, and nobody has answered for it."""
    if not units:
        return
    unit, *others = units
    other = f" (or name {' or '.join(others)} in its place)" if others else ""
    say(
        f"--unit {shlex.quote(unit)} in the next commands{other} is for a person who may have several rows: the "
        f"guarantee is then for all rows of one {unit}. Without it the guarantee is for one row, and {unit} is learned "
        "as any other column: if each person has one row, leave out both"
    )


def _say_what_comes_next(arguments, schema, target, unit, left_out):
    """Print the commands that follow, with the options of this one that they need too."""
    shared = options(schema=schema, target=target)
    planned = shared + options(unit=unit)  # by the schema alone, which lacks the columns that are left out
    shared += options(unit=unit, drop=",".join(map(str, left_out)) or None)
    source = shlex.quote(arguments.input)
    say(
        "next, what the noise will hide (with your number of rows), a fit, which is charged, and a page for your eyes "
        "alone:\n"
        f"  skdpgen budget{planned} --rows 10000 --epsilon 1,3,10\n"
        f"  skdpgen synthesize {source}{shared} --epsilon 1 "
        "--output synthetic.csv --card card.json\n"
        f"  skdpgen report {source} synthetic.csv{shared} --card card.json"
    )


def _settled(arguments, frame, notation):
    """Return the schema that the dtypes of a frame and the options give."""
    from pandas.api.types import is_float_dtype

    from .. import Schema
    from ..tabular._identifiers import identifier_of

    names = list(frame.columns)
    patterns = _patterns(arguments.id, names)
    keys, codes = list(patterns), names_of(arguments.categorical, names, "--categorical")
    if arguments.target is not None:
        if arguments.target not in names:
            raise ValueError(f"--target: no column {arguments.target!r}; the file has {', '.join(names)}")
        if not is_float_dtype(frame[arguments.target].dtype):  # as `is_numeric_target` has it
            codes.append(arguments.target)
    numbers = names_of(arguments.number_in_unit, names, "--number-in-unit")
    lists = _lists(arguments.categories, names)
    codes = list(dict.fromkeys([*codes, *lists]))
    named = {"--id": keys, "--number-in-unit": numbers, "--categorical, --categories or --target": codes}
    for one, other in itertools.combinations(named, 2):
        if twice := [name for name in named[one] if name in named[other]]:
            raise ValueError(f"{twice[0]!r} is named by {one} and by {other}: give one of them")
    schema = Schema.from_kinds(frame.drop(columns=[*keys, *numbers]), categorical=codes)
    schema = schema.replace(*_with_categories(schema, frame, lists, notation))
    schema = schema.replace(*_with_hierarchies(schema, arguments.hierarchy))
    schema = schema.replace(*_with_bounds(schema, arguments.bounds, declared_notation(notation)))
    made = {name: identifier_of(name, frame[name].dtype, patterns[name]) for name in keys}
    made |= {name: replace(identifier_of(name, frame[name].dtype), within_unit=True) for name in numbers}
    return Schema(made[name] if name in made else schema[name] for name in names)


def _lists(texts, known):
    """Return the columns that ``--categories`` names, and the files of their codes, or the codes."""
    found = {}
    for text in texts:
        # a name, and a path, may contain "="
        places = [at for at, mark in enumerate(text) if mark == "=" and text[:at] in known]
        if not places or not text[places[0] + 1 :]:
            raise ValueError(
                "--categories must be COLUMN=LIST.csv or COLUMN=A,B, with a column of the file "
                f"({', '.join(known)}); got {text}"
            )
        name, path = text[: places[0]], text[places[0] + 1 :]
        if name in found:
            raise ValueError(f"--categories names {name!r} twice: give one list")
        found[name] = path
    return found


def _with_categories(schema, frame, lists, notation):
    """Return the columns to which ``--categories`` gives all their codes, from public files."""
    from pandas.api.types import is_integer_dtype, is_string_dtype

    changed = []
    for name, path in lists.items():
        whole = is_integer_dtype(frame[name].dtype)
        if not whole and not is_string_dtype(frame[name].dtype):
            raise ValueError(f"--categories: {name!r} is no column of text or whole numbers")
        where = f"--categories {name}={path}"
        if "," in path and not os.path.exists(path):
            values = _codes(enumerate(map(str.strip, next(csv.reader([path]))), 1), "entry", name, where, whole=whole)
            say(f"{name}: {len(values)} categories: {', '.join(map(str, values))}")
        else:
            values = _codes(_listed(path, where, notation.separator or ","), "line", name, where, whole=whole)
            say(f"{name}: {len(values)} categories, from {values[0]} to {values[-1]}, as {path} lists them")
        changed.append(replace(schema[name], categories=values))
    return changed


def _listed(path, where, separator):
    """Read the first field of each line of a public file, with the number of the line; empty lines are left out."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, delimiter=separator)
            return [(reader.line_num, row[0].strip()) for row in reader if row and row[0].strip()]
    except OSError as error:
        here = ". A list without a file has a comma: --categories sex=f,m" if not os.path.exists(path) else ""
        raise ValueError(f"{where}: {error.strerror or error}{here}") from None
    except (UnicodeDecodeError, csv.Error):
        raise ValueError(f"{where}: the file is no text in UTF-8 with one code in each line") from None


def _codes(listed, place, name, where, *, whole):
    """Return the codes of a column, in the order in which they are listed.

    `listed`: pairs of a number of a line, or of an entry, and a text. `place`: "line" or "entry". In a file, a first
        line with the name of the column is a header.
    `whole`: whether the column has whole numbers; else it has text.
    """
    lines = [(line, text) for line, text in listed if text]
    in_file = place == "line"
    if in_file and lines and lines[0][1] == str(name):
        lines = lines[1:]
    if not lines:
        raise ValueError(f"{where}: the {'file' if in_file else 'list'} has no code")
    places = {}
    for line, text in lines:
        if whole and not re.fullmatch(r"[+-]?\d{1,18}", text):
            first = in_file and (line, text) == lines[0]
            header = f"; a header must be the name of the column, {name}" if first else ""
            raise ValueError(f"{where}: {place} {line} has {text!r}, and the column has whole numbers{header}")
        code = int(text) if whole else text
        if code in places:
            raise ValueError(
                f"{where}: {code!r} is in {place} {places[code]} and in {place} {line}: list each code once"
            )
        places[code] = line
    return tuple(places)


def _with_hierarchies(schema, texts):
    """Return the columns to which ``--hierarchy`` gives groups of categories."""
    from ..tabular import Categorical

    changed = []
    for text in texts:
        name, equals, lengths = text.rpartition("=")
        if not equals or not all(length.isdecimal() for length in lengths.split(",")):
            raise ValueError(f"--hierarchy must be COLUMN=N or COLUMN=N,M, numbers of first characters; got {text}")
        if name not in schema or not isinstance(schema[name], Categorical):
            texts_of = [str(column.name) for column in schema.columns if isinstance(column, Categorical)]
            raise ValueError(
                f"--hierarchy: {name!r} is no column of text or of --categorical codes; these are "
                f"{', '.join(texts_of) or 'none'}"
            )
        changed.append(replace(schema[name], hierarchy=tuple(map(int, lengths.split(",")))))
    return changed


def _with_bounds(schema, texts, declared):
    """Return the columns to which ``--bounds`` gives bounds, in the notation `declared` or the usual one."""
    from ..tabular import Datetime, Numeric

    changed = []
    for text in texts:
        name, equals, bounds = text.rpartition("=")
        low, dots, high = bounds.partition("..")
        if not (equals and dots):
            raise ValueError(f"--bounds must be COLUMN=LOW..HIGH; got {text}")
        if name not in schema or not isinstance(schema[name], Numeric | Datetime):
            known = [str(column.name) for column in schema.columns if isinstance(column, Numeric | Datetime)]
            raise ValueError(
                f"--bounds: {name!r} is no column of numbers or dates; these are {', '.join(known) or 'none'}"
            )
        if isinstance(schema[name], Datetime):
            ends = [date_in(end, schema[name].format) for end in (low, high)]
        else:
            ends = [number_in(end, declared) for end in (low, high)]
            if None in ends:
                raise ValueError(f"--bounds must be COLUMN=LOW..HIGH, with two numbers; got {text}")
            ends = [int(end) if end.is_integer() else end for end in ends]
        changed.append(replace(schema[name], bounds=tuple(ends)))
    return changed


def _patterns(texts, known):
    """Return the columns that ``--id`` names, and the form of their keys: None without ``=P-####``."""
    found = {}
    for text in texts:
        for one in [text] if text in known else text.split(","):
            name, equals, pattern = (one, "", "") if one in known else one.partition("=")
            found |= dict.fromkeys(names_of([name], known, "--id"), pattern if equals else None)
    return found


def _point_out(arguments, schema, units):
    """Say which columns may be identifiers or codes, by names and dtypes alone, and the command that settles it.

    `units`: columns of persons with several rows, of which something else is said.

    Returns: their names by option, a dict.
    """
    from ..tabular import Numeric
    from ..tabular._identifiers import identifies_persons, likely_codes, likely_identifiers

    again = f"skdpgen schema {shlex.quote(arguments.input)}{_notation(arguments, dates=True)}"
    persons = [column.name for column in schema.columns if identifies_persons(column)]
    if persons:
        listed = shlex.quote(",".join(persons))
        say(
            f"names, addresses or the like, by the names of the columns: {', '.join(persons)}. If they "
            f"identify persons, leave them out: {again} --drop {listed}; or for fresh keys: --id {listed}"
        )
    if keys := [name for name in likely_identifiers(schema) if name not in (*persons, *units)]:
        listed = shlex.quote(",".join(keys))
        say(
            f"identifiers, by their names: {', '.join(keys)}. For fresh keys: {again} --id {listed}; without "
            f"the columns: --drop {listed}"
        )
    codes = [name for name in likely_codes(schema) if name not in (*keys, *persons)]
    if codes:
        say(
            f"codes, by their names: {', '.join(codes)}. As categories: {again} --categorical "
            f"{shlex.quote(','.join(codes))}"
        )
    whole = [column for column in schema.columns if isinstance(column, Numeric) and column.integer]
    settled = (*keys, *persons, *codes, *units)
    whole = [column.name for column in whole if not column.complete and column.name not in settled]
    if whole:
        say(
            f"whole numbers, which are taken for quantities: {', '.join(map(str, whole))}. If one of them is "
            "a code or a class, name it by --categorical, or --target"
        )
    return {"number_in_unit": [], "id": keys, "categorical": codes, "drop": persons}


def _point_out_values(frame, units):
    """Say what the rows suggest, without a value of them: for the data holder alone.

    Returns: the columns that number the rows of a person.
    """
    from ._hints import UNIT_HINT, codes_of_missing_values, constant_within, row_numbers

    likely = f". Likely columns, by their names and repeated values: {', '.join(units)}" if units else ""
    unit = shlex.quote(units[0]) if units else "COLUMN"
    say(f"{UNIT_HINT}: skdpgen synthesize --unit {unit}, the column of their identifiers{likely}")
    if numbers := row_numbers(frame, units[0]) if units else []:
        say(
            f"numbers of the rows of one {units[0]}, from 1: {', '.join(numbers)}. If the rows of synthetic "
            f"persons are to be numbered in the same way: --number-in-unit {shlex.quote(','.join(numbers))}"
        )
    if alike := constant_within(frame, units[0]) if units else []:
        say(
            f"one value in all rows of each {units[0]}: {_comma(alike)}. If it is public that these are constant "
            f"within a unit, keep it in synthetic units: skdpgen synthesize --unit {unit} --unit-columns "
            f"{shlex.quote(_comma(alike))}"
        )
    if marked := [name for name in frame.columns if codes_of_missing_values(frame[name])]:
        say(
            f"numbers such as -9, -99 or 999, apart from all others: {', '.join(map(str, marked))}. If they "
            "stand for a missing value, give each as --missing NUMBER. Synthetic rows are written with the first TEXT "
            "of --missing: with --missing '' before the numbers, with empty fields. The commands below lack these "
            "options, because a number of --missing is a missing value in all columns"
        )
    return numbers


def _with_limits(arguments, notation, schema):
    """Return the columns without bounds in which results beyond a limit of measurement are written, such as <5."""
    from ..data.other_notations import SIGNS_OF_LIMITS
    from ..data.table_reading import read_texts
    from ..tabular import Numeric

    signs = [re.escape(sign.strip()) for sign in notation.signs if sign.strip() in SIGNS_OF_LIMITS]
    names = [column.name for column in schema.columns if isinstance(column, Numeric) and column.bounds is None]
    if not (signs and names):
        return []
    texts = read_texts(arguments.input, notation, names)
    return [name for name in names if texts[name].str.contains("|".join(signs)).any()]


def _point_out_limits(arguments, limits):
    """Say that limits of measurement are to be declared as bounds: the rows at a bound keep their share."""
    if not limits:
        return
    say(
        f"results beyond a limit of measurement, as <5, which is read as 5: {_comma(limits)}. Declare the limit as a "
        "bound of the column, that of < as the lowest one and that of > as the highest one. The rows at a bound keep "
        "their exact share; the fit spreads those at a limit that is not declared over values near it. With numbers in "
        f"place of LOW and HIGH: skdpgen schema {shlex.quote(arguments.input)}{_notation(arguments, dates=True)}"
        + options(bounds=[f"{name}=LOW..HIGH" for name in limits])
    )


def _fills_empty_fields(arguments, notation, frame):
    """What to say where synthetic rows would have a number in place of the empty fields of the file; else None."""
    from ..data.table_reading import read_texts

    first = notation.missing_marks[:1]
    if not notation.numbers_of(first):
        return None
    names = [name for name in frame.columns if frame[name].isna().any()]
    if not names or not read_texts(arguments.input, notation, names).isna().any(axis=None):
        return None
    return (
        f"the file has empty fields, and synthetic rows are written with the first TEXT of --missing for every missing "
        f"value: {first[0]}. With --missing '' before --missing {shlex.quote(first[0])}, with empty fields"
    )


def _point_out_columns(frame, numbers, codes, units, hierarchies):
    """Say which columns tell nothing, or follow from others: for the data holder alone.

    `numbers`: columns that are taken for quantities, without bounds.
    `codes`: columns that are categories, also by their names.
    `hierarchies`: of `code_systems`; those of whole numbers that may be codes are added.
    Returns: the columns to leave out, to make keys and to make categories, a dict by option.
    """
    from ._hints import two_numbers

    both = [name for name in two_numbers(frame) if name not in units]
    texts, left_out = _of_little_use(frame, both, units)
    keys, of_keys = _likely_keys(frame, numbers, (*units, *both))
    long, short, of_codes = _likely_codes(frame[numbers], units, (*keys, *codes))
    pairs, of_copies = _copies(frame)
    for text in [
        *texts,
        *of_keys,
        *of_codes,
        *of_copies,
        *_rules_to_declare(frame.drop(columns=[name for _, name in pairs]), {*codes, *long, *short}, hierarchies),
    ]:
        say(text)
    hierarchies.update({name: [1] for name in short})
    return {"id": keys, "categorical": [*long, *short], "drop": [*left_out, *(name for _, name in pairs)]}


def _of_little_use(frame, both, units):
    """What to say of columns of which little can be learned, and the columns to leave out.

    `both`: columns of two numbers in one text.
    """
    from ._hints import alike_texts, constants, free_texts

    said = []
    if names := constants(frame):
        said.append(
            f"one value in all rows: {_comma(names)}. They take budget and tell nothing: --drop "
            f"{shlex.quote(_comma(names))}"
        )
    if both:
        said.append(
            f"two numbers in one text, as 120/80: {_comma(both)}. Split each into two columns, from which much is "
            f"learned; as text nothing is: until then --drop {shlex.quote(_comma(both))}"
        )
    if texts := [name for name in free_texts(frame) if name not in (*units, *both)]:
        said.append(
            f"text that few rows share: {_comma(texts)}. Nothing of it can be learned; free text and keys are best "
            f"left out: --drop {shlex.quote(_comma(texts))}"
        )
    if alike := alike_texts(frame):
        said.append(
            f"texts that differ in spaces at their ends, or in upper and lower case alone: {_comma(alike)}. They are "
            "separate categories: if they mean the same, write them in one way first"
        )
    return said, [*names, *both, *texts]


def _likely_keys(frame, numbers, apart):
    """Columns that may be keys, and what to say of them; none of those that stand `apart`."""
    from ._hints import distinct_numbers, likely_keys

    said = []
    if keys := [name for name in likely_keys(frame) if name not in apart]:
        said.append(
            f"hardly any two rows share a value: {_comma(keys)}. If these are keys, a sample can have fresh ones: --id "
            f"{shlex.quote(_comma(keys))} (NAME=P-####: of this form)"
        )
    if names := [name for name in distinct_numbers(frame[numbers]) if name not in (*apart, *keys)]:
        said.append(
            f"whole numbers no two of which are equal: {_comma(names)}. Only if these are keys, and no quantities: "
            f"--id {shlex.quote(_comma(names))}"
        )
    return keys, said


def _likely_codes(numbers, units, known):
    """Whole numbers that may be codes: of one length, or of few digits; and what to say of them."""
    from ._hints import codes_of_one_length, short_codes

    said = []
    if long := [name for name in codes_of_one_length(numbers) if name not in units]:
        said.append(
            f"whole numbers that all have the same number of digits, and few different ones: {_comma(long)}. If these "
            f"are codes, whose order means nothing: --categorical {shlex.quote(_comma(long))}"
        )
    if short := [name for name in short_codes(numbers) if name not in (*units, *known)]:
        groups = "".join(f" --hierarchy {shlex.quote(f'{name}=1')}" for name in short)
        said.append(
            f"whole numbers of three or four digits with many gaps, and few different ones: {_comma(short)}. If these "
            "are codes, as of occupations, whose first digits are groups: --categorical "
            f"{shlex.quote(_comma(short))}{groups}"
        )
    return long, short, said


def _copies(frame):
    """Pairs of equal columns, and what to say of them."""
    from ._hints import copies

    if not (pairs := copies(frame)):
        return pairs, []
    names = shlex.quote(_comma([name for _, name in pairs]))
    return pairs, [
        f"equal to another column in all rows: {'; '.join(f'{two} to {one}' for one, two in pairs)}. The fit does "
        f"not know that, and synthetic rows would differ in them: leave them out, --drop {names}"
    ]


def _rules_to_declare(frame, codes, hierarchies):
    """What rows show that a fit does not know, one text each: columns that follow, groups of codes, lacking times.

    `codes`: columns of numbers that are categories.
    """
    from ._hints import lacking_times, nested

    said = []
    if found := nested(frame, codes):
        options = " ".join(f"--constraint {shlex.quote(_determines(fine, rest))}" for fine, rest in found.items())
        follow = "; ".join(f"{_comma(rest)} from {fine}" for fine, rest in found.items())
        said.append(
            f"columns that follow from others, as a region from a district: {follow}. If that is public knowledge, "
            f"keep it in all synthetic rows: skdpgen synthesize {options}"
        )
    for name, lengths in hierarchies.items():
        option = shlex.quote(f"{name}={_comma(lengths)}")
        said.append(
            f"many codes, by their form: {name}. If codes with the same first characters belong together, as in "
            f'ICD-10, add "hierarchy": {lengths} to this column of the schema file, or give --hierarchy '
            f"{option}: groups of codes are then learned where single codes are too rare"
        )
    days, hours = lacking_times(frame)
    if days:
        constraint = _for_shell(f"weekday({_in_constraint(days[0])}) != 'Sunday'")
        said.append(
            f"dates with no row on some day of the week: {_comma(days)}. The fit does not know that. If it is public, "
            f"as of a shop that is closed on Sundays: skdpgen synthesize --constraint {constraint}"
        )
    if hours:
        constraint = _for_shell(f"8 <= hour({_in_constraint(hours[0])}) < 20")
        said.append(
            f"dates with no row at some hours: {_comma(hours)}. The fit does not know that. If it is public, as of a "
            f"shop that is closed at night: skdpgen synthesize --constraint {constraint}"
        )
    return said


def _comma(names):
    return ",".join(map(str, names))


def _determines(fine, rest):
    return f"determines({', '.join(map(_in_constraint, (fine, *rest)))})"


def _for_shell(constraint):
    """A constraint as an argument in a shell: in double quotes where it has single ones, if these suffice."""
    simple = "'" in constraint and not set('"$`\\') & set(constraint)
    return f'"{constraint}"' if simple else shlex.quote(constraint)


def _in_constraint(name):
    return str(name) if str(name).isidentifier() else f"`{name}`"
