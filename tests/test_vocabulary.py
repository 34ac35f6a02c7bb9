"""Words that must not appear in the package, the benchmarks, the documentation and the examples.

The project uses the standard terms of the field. `python tests/test_vocabulary.py` prints every
hit by file, and the numbers for `STILL_TO_DO`.
"""

from __future__ import annotations

import re
from collections import Counter
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
    ("doc/privae.md", r"test_a_groups_gradient_turns_round_when_a_record_joins", "the name of a test"),
)

# Hits that are left in the rooms that are still to do. Text may move between these rooms, but the sum may only shrink.
# Delete a room from this table when it has no hits: from then on it may have none.
STILL_TO_DO: dict[str, int] = {
    "benchmarks": 58,
    "doc": 3,
    "skdpgen": 12,
    "skdpgen/accounting": 157,
    "skdpgen/audit": 22,
    "skdpgen/commands": 18,
    "skdpgen/data": 20,
    "skdpgen/datasets": 1,
    "skdpgen/decomposition": 9,
    "skdpgen/dpsgd": 52,
    "skdpgen/estimator_checks": 28,
    "skdpgen/generators": 82,
    "skdpgen/mechanisms": 15,
    "skdpgen/metrics": 26,
    "skdpgen/mixture": 16,
    "skdpgen/model_selection": 49,
    "skdpgen/nn": 26,
    "skdpgen/report": 23,
    "skdpgen/synthesizers": 170,
    "skdpgen/tabular": 13,
    "skdpgen/testing": 24,
    "skdpgen/utils": 14,
}

_SPACE = r"(?:\s+(?:#:?\s+)?)"  # also over the lines of a comment
_ALL = re.compile(
    "(?<![a-z])(?:" + "|".join(f"(?P<w{k}>{word.replace(' ', _SPACE)})" for k, word in enumerate(WORDS)) + ")(?![a-z])"
)
_INSTEAD = list(WORDS.values())


def room_of(path):
    """Package folder, or folder of the repository, in which a file is."""
    parts = path.relative_to(ROOT).parts
    return "/".join(parts[:2] if parts[0] == "skdpgen" and len(parts) > 2 else parts[:1])


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


@pytest.fixture(scope="module")
def hits():
    """Hits of each room, one readable line each."""
    found = {}
    for path in files():
        for line, word, instead in hits_in(path):
            shown = f"{path.relative_to(ROOT).as_posix()}:{line}: {word!r}; write: {instead}"
            found.setdefault(room_of(path), []).append(shown)
    return found


def test_words_outside_the_vocabulary_do_not_appear(hits):
    lines = [line for room in sorted(hits) if room not in STILL_TO_DO for line in hits[room]]
    assert not lines, f"{len(lines)} hits:\n" + "\n".join(lines)


def test_rooms_that_are_still_to_do_have_no_new_hits(hits):
    lines = [line for room in sorted(STILL_TO_DO) for line in hits.get(room, [])]
    assert len(lines) <= sum(STILL_TO_DO.values()), f"{len(lines)} hits, one or more of them new:\n" + "\n".join(lines)


def test_the_list_of_rooms_is_emptied_when_no_hit_is_left(hits):
    left = [room for room in STILL_TO_DO if room in hits]
    assert left or not STILL_TO_DO, "no hit is left: empty STILL_TO_DO"


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
    counts = Counter()
    for path in files():
        for line, word, instead in hits_in(path):
            print(f"{path.relative_to(ROOT).as_posix()}:{line}: {word!r}; write: {instead}")
            counts[room_of(path)] += 1
    print("\nSTILL_TO_DO: dict[str, int] = {")
    for room, count in sorted(counts.items()):
        print(f'    "{room}": {count},')
    print("}")
