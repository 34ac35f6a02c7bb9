"""Words that must not appear in the package, the benchmarks, the documentation and the examples.

The project uses the standard terms of the field. `python tests/test_vocabulary.py` prints every hit by file.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SEARCHED = ("README.md", "CONTRIBUTING.md", "skdpgen", "benchmarks", "doc", "examples")
SUFFIXES = {".py", ".md", ".rst"}

# "of its own" ends a phrase; "of its own rows" is right.
_AFTER = "and|as|at|beside|but|by|for|from|has|in|is|on|or|that|to|which|with"

# Pattern (in lower case; a space is any white space) and what to write instead. Underscores of identifiers end a word.
WORDS = {
    r"books?": "ledger, accountant",
    r"laws?": "distribution",
    r"particles?": "support point",
    r"vouchers?": "reservation",
    r"prepaid": "reservation",
    r"made up(?! of)": "dummy",
    r"(?<!from\s)scratch": "auxiliary",
    r"class sizes?": "class-wise norm distribution",
    r"cells? of (?:a|each|every|its|one|the) class(?:es)?": "sub-cluster",
    r"members of (?:a|the|one) fit": "restarts",
    r"hang(?:s|ing)? on": "depends on",
    r"h(?:o|e)lds? together|hang(?:s|ing)? together": "consistent",
    r"(?:un)?paid|pay(?:s|ing)?": "charged, costs",
    r"price[ds]?": "cost, epsilon",
    r"dearer|dearest": "more expensive",
    r"told": "say what it is: stated, known, given",
    r"tell(?:s|ing)? of": "reveals, depends on",
    rf"of (?:its|their|your|our|his) own(?=\s*[^\w\s]| (?:{_AFTER})\b)": "separate, independent, your own ...",
    r"some (?:\d[\d,.]*|ten|twenty|hundred|thousand|million)": "about",
    r"coins?": "independent draw",
    r"turn(?:s|ed|ing)? round": "reverses",
    r"drown(?:s|ed|ing)?": "noise hides",
    r"thr(?:ow|ows|own|owing|ew) away": "delete, discard",
    r"in truth": "true ...",
    r"what is best": "optimal",
    r"is epsilon true": "reported epsilon",
}

# Where a word is right: file, pattern of the words around it, reason.
ALLOWED = (
    ("doc/changelog.md", r"\|[^\n]*\|", "the table of old and new names"),
    ("benchmarks/peers/adapter.py", r'"unpaid":', "a key of the stored results"),
    ("benchmarks/peers/worker.py", r'"told":', "a key of the stored results"),
    ("benchmarks/development.py", r'"[a-z_]*price[a-z_]*"', "columns of the data"),
    ("skdpgen/accounting/_card.py", r"book value", "a text of saved cards of an earlier version"),
    ("skdpgen/datasets/_tables.py", r"without-pay", "a category of the data"),
    ("skdpgen/dpsgd/_noise.py", r"scratch", "scratch memory, the standard term for working arrays"),
    ("skdpgen/generators/product_mixture.py", r'"particles"', "a key of model files"),
    ("skdpgen/generators/scores.py", r'"particles"', "a key of model files"),
    ("skdpgen/synthesizers/_frame_model.py", r'"particles"', "a key of model files"),
)

_SPACE = r"(?:\s+(?:#:?\s+)?)"  # also over the lines of a comment
_ALL = re.compile(
    "(?<![a-z])(?:" + "|".join(f"(?P<w{k}>{word.replace(' ', _SPACE)})" for k, word in enumerate(WORDS)) + ")(?![a-z])"
)
_INSTEAD = list(WORDS.values())


def files():
    for name in SEARCHED:
        start = ROOT / name
        for path in sorted(start.rglob("*")) if start.is_dir() else [start]:
            if path.suffix in SUFFIXES and "_build" not in path.parts:
                yield path


def hits_in(path):
    """Yield (line, word as written, what to write instead) of each hit that is not allowed."""
    text = path.read_text(encoding="utf-8").lower()
    name = path.relative_to(ROOT).as_posix()
    allowed = [m.span() for file, around, _ in ALLOWED if file == name for m in re.finditer(around, text)]
    for match in _ALL.finditer(text):
        if not any(begin <= match.start() and match.end() <= end for begin, end in allowed):
            instead = _INSTEAD[int(match.lastgroup[1:])]
            yield text.count("\n", 0, match.start()) + 1, " ".join(match.group().split()), instead


def all_hits():
    """Return one readable line for each hit."""
    return [
        f"{path.relative_to(ROOT).as_posix()}:{line}: {word!r}; write: {instead}"
        for path in files()
        for line, word, instead in hits_in(path)
    ]


def test_words_outside_the_vocabulary_do_not_appear():
    lines = all_hits()
    assert not lines, f"{len(lines)} hits:\n" + "\n".join(lines)


@pytest.mark.parametrize(("file", "around"), [allowed[:2] for allowed in ALLOWED])
def test_each_exception_is_needed(file, around):
    found = re.findall(around, (ROOT / file).read_text(encoding="utf-8").lower())
    assert any(_ALL.search(text) for text in found)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("it is paid for", "paid"),
        ("rows that are made\n    # up", "made # up"),
        ("n_particles = 3", "particles"),
        ("some 30 rows", "some 30"),
        ("a page of its own.", "of its own"),
        ("a page of its own and a table", "of its own"),
        ("what hangs on x", "hangs on"),
    ],
)
def test_a_word_is_found_over_lines_and_in_identifiers(text, word):
    assert [" ".join(match.group().split()) for match in _ALL.finditer(text)] == [word]


@pytest.mark.parametrize(
    "text", ["it is made up of parts", "trained from scratch", "some rows", "bookshelf", "the rows of its own subset"]
)
def test_other_words_are_not_found(text):
    assert not _ALL.search(text)


if __name__ == "__main__":
    print(*all_hits(), sep="\n")
