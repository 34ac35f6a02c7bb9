"""Questions of `skdpgen schema` on a terminal: what is public of each open column, and why it matters.

What is printed of the values is private and for the data holder alone. Only answers enter the schema, which is public.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from dataclasses import dataclass, field, replace

from ..exceptions import PrivacyLeakWarning, SchemaError
from ..tabular import Categorical, Datetime
from ..utils.callers import warn_user
from ..utils.printing import listed, printable

# Values of a list that are printed, and characters of each: a line of a terminal.
_SHOWN, _WIDTH = 6, 24
# Fewer rows tell nothing of keys and constants; more different whole numbers than this are hardly codes.
_FEW_ROWS, _MOST_CODES = 20, 25

_INTRODUCTION = """\
The schema says what is public about your table. What you answer is written into it, and is published with every model,
card and row made with it. Lines that begin with "|" are computed from your rows: they are private, for your eyes alone.
Answer by what anyone may know of such data, not by what these lines show. Nothing is charged here.
"""
_TARGET = """\
Which column would a model predict, such as a diagnosis? Its values become classes, and the synthetic rows keep best how
the other columns depend on it. Name of a column, or Enter for none.
"""
_UNIT = """\
Can one person (or another unit that you protect, such as a household) have several rows? Then name the column of their
identifiers: the guarantee is then for the person, and not for one row, and the column is neither modelled nor written.
Name of a column, or Enter if each person has one row.
"""
_WHY_BOUNDS = (
    "Bounds that you declare cost nothing; the fit learns others for a part of the budget, and may cut rare ends."
)
_WHY_CATEGORIES = (
    "Categories that you declare cost nothing and stay; the fit learns others for a part of the budget, and makes rare "
    'ones "other".'
)


@dataclass
class Answers:
    """What was answered."""

    schema: object  # Schema; with the declared facts, and without the columns that are left out
    # list of str; columns whose bounds or categories are to be copied from the file, as the option ``--public`` does
    public: list = field(default_factory=list)
    left_out: list = field(default_factory=list)  # list of str
    target: str | None = None
    unit: str | None = None  # column of the identifiers of persons with several rows; it is not in the schema
    missing: list = field(default_factory=list)  # list of str; numbers that stand for a missing value, in all columns
    frame: object = None  # DataFrame; the rows, in which these numbers are missing


class Terminal:
    """Reads answers from stdin and writes questions to stderr, which stays a terminal where stdout is a file."""

    def say(self, text):
        print(text, file=sys.stderr)

    def ask(self, prompt):
        print(f"{prompt}> ", end="", file=sys.stderr, flush=True)
        answer = sys.stdin.readline()
        if not answer:
            self.say("")
            raise ValueError("the answers ended before the questions: no schema was written (--no-questions asks none)")
        return answer.strip()


def on_terminal():
    """Return whether somebody can answer: stdin and stderr are terminals."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def ask_about(schema, frame, terminal, target=None, public=(), limits=(), marks=True) -> Answers:
    """Ask about the target, about persons with several rows, about each column that is open, and about missing values.

    `schema`: what the dtypes of `frame` and the options of the command give.
    `frame`: private rows. What is computed from them goes to `terminal` and nowhere else.
    `target`: the target, if an option named it; None asks.
    `public`: columns that an option has declared public: they are not asked about.
    `limits`: columns in which results beyond a limit of measurement are written, such as <5.
    `marks`: whether a number may stand for a missing value: in a file of texts, not in Parquet.
    """
    terminal.say(_INTRODUCTION)
    if target is None:
        target, schema = _target(schema, frame, terminal)
    unit = _unit(schema, frame, target, terminal)
    if unit is not None:
        schema = schema.select([name for name in schema if name != unit])
    columns, public, left_out, missing = dict(schema._by_name), list(public), [], []
    open_ = [name for name in schema.incomplete if name not in public]
    place = 0
    while place < len(open_):
        name = open_[place]
        # an answer that was taken back leaves nothing behind
        columns[name] = schema[name]
        public, left_out = ([one for one in names if one != name] for names in (public, left_out))
        head = f"[{place + 1} of {len(open_)}] {printable(name)}"
        question = _Question(schema[name], frame[name], name == target, head, terminal, name in limits, marks)
        answer = question.answered()
        for mark in question.missing:
            frame = _without(frame, mark, name, terminal)
            missing.append(mark)
        if answer == "q":
            break
        if answer == "b":
            place = max(place - 1, 0)
            continue
        if answer == "x":
            left_out.append(name)
        elif answer == "p":
            public.append(name)
        columns[name] = question.column
        place += 1
    kept = [column for name, column in columns.items() if name not in left_out]
    if not kept:
        raise ValueError("every column is left out: no schema was written")
    kept = _never_missing(kept, frame, terminal)
    rest = schema.select([column.name for column in kept])  # its constraints
    return Answers(rest.replace(*kept), public, left_out, target, unit, missing, frame)


def _without(frame, mark, asked, terminal):
    """The rows in which a number is a missing value in all columns, as the reader of a file has it.

    `asked`: column in whose question the answer was given.
    """
    masked = {name: _masked(frame[name], mark) for name in frame.columns}
    masked = {name: values for name, values in masked.items() if values is not None}
    if others := [printable(name) for name in masked if name != asked]:
        terminal.say(f"  | {printable(mark)} is now a missing value in these columns too: {', '.join(others)}.")
    return frame.assign(**masked)


def _masked(values, mark):
    """A column in which a number, given as text, is missing; None where it does not occur."""
    import pandas as pd
    from pandas.api import types as pdt

    if pdt.is_numeric_dtype(values.dtype) and not pdt.is_bool_dtype(values.dtype):
        found = values == float(mark)
    elif isinstance(values.dtype, pd.StringDtype):
        found = values == mark
    else:
        return None
    found = found.fillna(False).astype(bool)
    if not found.any():
        return None
    return (values.astype("Int64") if values.dtype.kind == "i" else values).mask(found)


def _target(schema, frame, terminal):
    """Return the target, and the schema in which its whole numbers are classes."""
    terminal.say(_TARGET + "columns: " + ", ".join(printable(name) for name in schema))
    while True:
        answer = terminal.ask("target")
        if not answer:
            return None, schema
        if answer in schema:
            return answer, schema.replace(_as_code(schema[answer], frame))
        terminal.say(f"  no column {printable(answer)!r}: type a name as it is listed above, or Enter for none")


def _unit(schema, frame, target, terminal):
    """Return the column of identifiers of persons with several rows, or None."""
    from ._hints import likely_units

    if len(schema) < 2:
        return None
    likely = [printable(name) for name in likely_units(frame) if name in schema and name != target]
    terminal.say(_UNIT + (f"  | Likely, by their names and repeated values: {', '.join(likely)}" if likely else ""))
    while True:
        answer = terminal.ask("persons")
        if not answer:
            return None
        if answer in schema and answer != target:
            return answer
        names = ", ".join(printable(name) for name in schema if name != target)
        terminal.say(f"  {printable(answer)!r} is none of the columns {names}: type one of these, or Enter for none")


def _as_code(column, frame):
    """The column as a categorical one, if it is of whole numbers."""
    from .. import Schema
    from ..tabular import Numeric

    if not (isinstance(column, Numeric) and column.integer):
        return column
    return Schema.from_kinds(frame[[column.name]], categorical=[column.name])[column.name]


class _Question:
    """One open column: what its rows show, what may be declared, and the column that an answer gives."""

    def __init__(self, column, values, is_target, head, terminal, has_limits=False, may_have_marks=True):
        self.column, self.values, self.is_target, self.has_limits = column, values, is_target, has_limits
        self.may_have_marks = may_have_marks
        self.head, self.terminal = head, terminal
        self.missing = []  # texts of numbers that stand for a missing value, by an answer
        self._find()

    def _find(self):
        self.found = self.values.dropna()
        self.different = self.found.nunique()

    def answered(self):
        """Ask until an answer is understood; return "x", "b", "q", "p" or "" where `column` holds the answer."""
        self._introduce()
        while True:
            answer = self.terminal.ask(f"  {printable(self.column.name)}")
            if answer in ("", "b", "q") or (answer == "x" and not self.is_target):
                return answer
            try:
                done = self._taken(answer)
            except (ValueError, TypeError, OverflowError) as error:
                self.terminal.say(f"  {printable(error)}")
                continue
            if done is not None:
                return done
            self._introduce()

    def _introduce(self):
        from ..tabular._identifiers import identifies_persons

        say = self.terminal.say
        say(f"{self.head}: {self._kind()}")
        say(f"  | {self._facts()}")
        for remark in [*self._limits(), *self._remarks()]:
            say(f"  | {remark}")
        if identifies_persons(self.column) and not self.is_target:
            say("  By its name the column may identify persons: leave it out (x), or let i draw fresh keys.")
        say(f"  {_WHY_CATEGORIES if self._categorical else _WHY_BOUNDS}")
        say("\n".join(f"  {line}" for line in self._options()))

    @property
    def _categorical(self):
        from ..tabular import Categorical

        return isinstance(self.column, Categorical)

    @property
    def _whole(self):
        """Whether the column is of whole numbers and may be a code; time spans are whole numbers of seconds."""
        from ..tabular import Numeric

        return isinstance(self.column, Numeric) and self.column.integer and self.found.dtype.kind in "iu"

    @property
    def _dates(self):
        from ..tabular import Datetime

        return isinstance(self.column, Datetime)

    def _kind(self):
        if self._categorical:
            return "classes, the target" if self.is_target else "codes" if self._numbers else "text, as categories"
        return "dates" if self._dates else "whole numbers" if self._whole else "numbers"

    def _facts(self):
        missing = self.values.isna().sum()
        shown = {0: "no value", 1: "1 value"}.get(self.different, f"{self.different:,} different values")
        if self._categorical and self.different:
            common = self.found.value_counts().index[:_SHOWN]
            rest = self.different - len(common)
            shown += ": " + ", ".join(_short(value) for value in common) + (f" and {rest:,} more" if rest else "")
        elif self.different:
            shown += f", {_short(self.found.min())} to {_short(self.found.max())}"
        return f"{shown}; {missing:,} of {len(self.values):,} missing" if missing else f"{shown}; none missing"

    def _limits(self):
        if not self.has_limits or self._categorical:
            return []
        return ["Some results are beyond a limit of measurement, as <5: type the limit as a bound (that of < first, "
                "that of > last), so that the rows at it keep their share; else the fit spreads them."]  # fmt: skip

    def _remarks(self):
        """What the rows suggest, one sentence each."""
        from ._hints import are_free_text, are_two_numbers, codes_of_missing_values, codes_of_one_length

        n_rows, text = len(self.found), self._categorical and not self._numbers
        if n_rows < _FEW_ROWS:
            return []
        if self.different == 1:
            return ["Looks constant: a column that never changes takes budget and tells nothing; leave it out: x."]
        if self.different == n_rows and (text or self._whole) and not self.is_target:
            return ["Looks like a key: no two rows share a value. A key cannot be learned, and a real one must not be "
                    "published; i draws fresh ones."]  # fmt: skip
        if text and are_two_numbers(self.found):
            return ["Looks like two numbers in one text: split it into two columns, from which much is learned; as "
                    "text nothing is; until then leave the column out: x."]  # fmt: skip
        if text and are_free_text(self.found):
            return ['Looks like free text: values that few rows share all become "other"; leave the column out: x.']
        if codes := [] if self._categorical else codes_of_missing_values(self.found):
            return [f"{', '.join(map(str, codes))}: apart from all other numbers. If it stands for a missing value, "
                    + (f"answer m {codes[0]}: it is then missing in all columns, as by --missing."
                       if self.may_have_marks else "make it missing in the Parquet file first.")]  # fmt: skip
        if self._whole and self.different <= _MOST_CODES and not self._categorical:
            return ["Few different whole numbers: if they are codes or classes (answer c), their order means nothing, "
                    "and numbers between them must not appear."]  # fmt: skip
        if self._whole and not self._categorical and codes_of_one_length(self.found.to_frame()):
            return ["All have the same number of digits, and values repeat: if they are codes (answer c), their order "
                    "means nothing."]  # fmt: skip
        return []

    @property
    def _numbers(self):
        return self.found.dtype.kind in "iuf"

    def _options(self):
        """The answers, on two lines."""
        if self._categorical:
            typed = f"{'1, 2, 5' if self._numbers else 'yes, no, unknown'}  these categories"
        else:
            typed = f"{'2015-01-01 2025-12-31' if self._dates else '0 120'}  these bounds"
        facts = ["Enter  learn them", typed, "p  those of the file, if they are public"]
        others = ["c  a code, not a quantity"] if self._whole else []
        others += ["i  a key (i P-####: of this form)"] if self._may_be_key else []
        others += ["m -9  -9 means missing"] if self.may_have_marks and self._numbers else []
        others += [] if self.is_target else ["x  leave the column out"]
        return [" | ".join(facts), " | ".join([*others, "b  back", "q  Enter for all that follow"])]

    @property
    def _may_be_key(self):
        return not self.is_target and (self._whole or (self._categorical and self.found.dtype.kind != "f"))

    def _taken(self, answer):
        """Take an answer into `column`; None asks again. ValueError says what is wrong with it."""
        from ..tabular._identifiers import identifier_of

        if self._may_be_key and (answer == "i" or (answer.startswith("i ") and "#" in answer)):
            self.column = identifier_of(self.column.name, self.values.dtype, answer[2:].strip() or None)
            return ""
        if answer == "c" and self._whole:
            self.column = _as_code(self.column, self.values.to_frame())
            return None
        if answer.startswith("m ") and self.may_have_marks and self._numbers:
            return self._take_missing(answer[2:].strip())
        if answer == "p":
            return self._of_file()
        if len(answer) == 1 and answer.isalpha():
            one = f"; for the one category {answer!r} type {answer}," if self._categorical else ""
            raise ValueError(f"{answer!r} is not an answer here; answers are: {' | '.join(self._options())}{one}")
        column = self._with_categories(answer) if self._categorical else self._with_bounds(answer)
        if column is None:
            return None
        self.column = column
        return ""

    def _take_missing(self, mark):
        """Make a number missing; return None, which asks again about the others."""
        self._number(mark)
        values = _masked(self.values, mark)
        if values is None:
            raise ValueError(f"no row has {mark} here")
        self.values, self.column = values, replace(self.column, missing=True)
        self.missing.append(mark)
        self._find()

    def _of_file(self):
        from .. import Schema

        if self.different < (1 if self._categorical else 2):
            raise ValueError("the file has too few values for that: type them, or Enter")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # refused here rather than when all is answered
            declare_public(Schema([self.column]), self.values.to_frame(), [self.column.name])
        if self._categorical:
            what = f"these {self.different:,} categories" if self.different > 1 else "this category"
            shown = ", ".join(_short(value) for value in self.found.value_counts().index[:_SHOWN])
            what += f" ({shown}{', ...' if self.different > _SHOWN else ''})"
        else:
            what = f"{_short(self.found.min())} and {_short(self.found.max())}"
        self.terminal.say(f"  This publishes {what}, which may be one person's. Are they public knowledge? [y/N]")
        return "p" if self.terminal.ask("  public").lower() in ("y", "yes") else None

    def _with_bounds(self, answer):
        ends = answer.replace("..", " ").replace(",", " ").replace("[", " ").replace("]", " ").split()
        if len(ends) != 2:
            example = "2015-01-01 2025-12-31" if self._dates else "0 120"
            raise ValueError(f"two bounds are needed, such as {example}; got {answer!r}")
        bounds = tuple(ends) if self._dates else tuple(self._number(end) for end in ends)
        column = replace(self.column, bounds=bounds)
        low, high = column.bounds
        if self._dates:
            import pandas as pd

            zone = getattr(self.found.dtype, "tz", None)
            low, high = (pd.Timestamp(end, tz=zone) for end in (low, high))
        with contextlib.suppress(TypeError, ValueError, NotImplementedError):  # of periods and decimals
            if outside := int(((self.found < low) | (self.found > high)).sum()):
                self.terminal.say(f"  | {outside:,} rows are outside these bounds: they become the nearest bound.")
        return column

    def _with_categories(self, answer):
        """The column with the categories of an answer; None asks about it again."""
        texts = [text.strip().strip("\"'") for text in answer.strip("[]").split(",")]
        texts = [text for text in texts if text]
        column = replace(self.column, categories=tuple(map(self._number, texts) if self._numbers else texts))
        known = set(column.categories)
        if not (unknown := [value for value in self.found.unique().tolist() if value not in known]):
            return column
        has = "has other values too" if len(unknown) < self.different else "has none of these, and its values are"
        self.terminal.say(f"  | The file {has}: {listed(map(_short, unknown), _SHOWN)}.".replace("'", ""))
        self.terminal.say(
            '  Enter makes them "other", in the fit and in the rows; type the whole list again; or b to take it back.\n'
            '  The schema is public: with "other" it says that there are further values.'
        )
        again = self.terminal.ask(f"  {printable(self.column.name)}")
        if len(again) == 1 and again.isalpha():  # a command, and no list
            return None
        if again:
            return self._with_categories(again)
        return replace(column, other=_free(column.categories))

    def _number(self, text):
        try:
            return int(text) if self._whole or self.found.dtype.kind in "iu" else float(text)
        except ValueError:
            whole = "a whole number" if self._whole or self.found.dtype.kind in "iu" else "a number"
            raise ValueError(f"{text!r} is not {whole}") from None


def _free(categories):
    """Value of the level "other": of a column of numbers a number."""
    if isinstance(categories[0], str):
        return next(
            text for text in ("other", *(f"other_{i}" for i in range(len(categories)))) if text not in categories
        )
    return next(number for number in (-1, max(categories) + 1) if number not in categories)


def _never_missing(columns, frame, terminal):
    """Ask which of the columns without a missing value never have one; return the columns."""
    full = [column.name for column in columns if column.missing and not frame[column.name].isna().any()]
    if not full:
        return columns
    terminal.say(
        "Can values be missing? A column that never has missing values needs no room for them, and is learned better.\n"
        f"  | No value is missing in {', '.join(map(printable, full))}.\n"
        "  Names of columns that never have missing values, separated by commas; * for all of these; Enter for none.\n"
        "  The answer becomes public: * publishes which columns of this file lack no value."
    )
    while True:
        answer = terminal.ask("  never missing")
        named = full if answer == "*" else [text.strip() for text in answer.split(",") if text.strip()]
        if answer in full:  # a name with a comma
            named = [answer]
        if not (unknown := [name for name in named if name not in full]):
            return [replace(column, missing=False) if column.name in named else column for column in columns]
        terminal.say(f"  {printable(unknown[0])!r} is none of them: {', '.join(map(printable, full))}")


def _short(value):
    text = printable(value).removesuffix(" 00:00:00")
    return text if len(text) <= _WIDTH else text[: _WIDTH - 3] + "..."


# ---- facts that the person at the command line declares public: they are copied from the values ----------------------
def declare_public(schema, frame, names):
    """Complete columns of a schema from the values of a frame, which the caller knows to be public.

    The smallest and largest value, or the distinct values, of the columns `names` are copied without noise.

    Raises SchemaError: a column does not exist, or has fewer than two values to take bounds from. Warns
    PrivacyLeakWarning: the schema, and every model fitted with it, contains those values.
    """
    if absent := [name for name in names if name not in schema]:
        raise SchemaError(f"not columns of the table: {listed(absent)}; it has {listed(schema)}")
    columns = [_complete(schema[name], frame[name].dropna()) for name in names if not schema[name].complete]
    if columns:
        warn_user(
            "the bounds or categories of "
            + ", ".join(repr(column.name) for column in columns)
            + " are those of the file, without noise, and every model and card made with this schema publishes them: "
            "leave them in the schema only if they are public knowledge",
            PrivacyLeakWarning,
        )
    return schema.replace(*columns)


def _complete(column, values):
    if isinstance(column, Categorical):
        if values.empty:
            raise SchemaError(f"column {column.name!r}: has no value; write its categories into the schema")
        return replace(column, categories=tuple(sorted(values.unique().tolist())))
    if values.nunique() < 2:
        raise SchemaError(
            f"column {column.name!r}: all values are equal, which gives no bounds: write bounds into the schema"
        )
    low, high = values.min(), values.max()
    if isinstance(column, Datetime):
        low, high = low.isoformat(), high.isoformat()
    return replace(column, bounds=(low, high))
