"""Run the code of pages and write its output into them: `python doc/run.py` (all), or with names of pages or examples.

The blocks of a page run in order: `sh` and `python` blocks in a temporary folder, Python in one process. The output of
a block replaces the `text` block that follows it. A block after `<!-- not run -->` is not run.

Tables between `<!-- results -->` and `<!-- /results -->` are printed by the benchmarks of the `sh` block above them,
from results stored in `doc/results`, without a fit. A test finds a table that differs from them.

A notebook of `examples/` is run in a new kernel, stored with its outputs, and becomes a page of the gallery; with
``--check`` it is run and nothing is written (the extra `docs`).

An example of `examples/` becomes a page of the gallery: its docstring, its source, its output, its pictures. The page
holds a digest of the source, so that a test finds a page that is older than its example.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import io
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

DOC = Path(__file__).resolve().parent
sys.path.insert(0, str(DOC))

import notebooks  # noqa: E402

EXAMPLES, GALLERY = DOC.parent / "examples", DOC / "gallery"
RUN_PAGES = ("choosing", "choosing_epsilon", "dp2vae", "pitfalls", "privae", "proofs_mended", "quickstart", "units")
RESULTS = re.compile(r"```sh\n(?P<code>[^`]*?)```\n\n<!-- results -->\n(?P<tables>.*?)<!-- /results -->\n", re.DOTALL)
BLOCK = re.compile(
    r"(<!-- not run -->\n)?```(sh|python)\n((?:(?!```).)*)```\n(?!\n<!-- results -->)(\n```text\n.*?```\n)?", re.DOTALL
)
# One process for all Python blocks of a page. It prints a line after each block, which separates their outputs.
_DRIVER = "import json, sys\nscope = {'__name__': '__main__'}\n" + (
    "for line in sys.stdin:\n"
    "    exec(compile(json.loads(line), '<page>', 'exec'), scope)\n"
    "    print('\\0', flush=True)\n"
)


def digest(path):
    """Short digest of a file's text."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def run_page(path):
    """Run the blocks of a page, in order, and write their outputs into it."""
    text = path.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder, _python(folder) as process:
        path.write_text(BLOCK.sub(lambda match: _fill(match, folder, process), text), encoding="utf-8")
        process.stdin.close()


def write_tables(path):
    """Write the tables of stored results into a page."""
    text = path.read_text(encoding="utf-8")
    written = RESULTS.sub(_with_tables, text)
    if written != text:
        path.write_text(written, encoding="utf-8")


def _with_tables(match):
    begin, end = (place - match.start() for place in match.span("tables"))
    return match.group()[:begin] + tables_of(match["code"]) + match.group()[end:]


def tables_of(code):
    """Tables that the benchmarks of a block print from stored results."""
    from skdpgen.__main__ import main

    tables = []
    for line in code.replace("\\\n", " ").splitlines():
        arguments = shlex.split(line, comments=True)
        if arguments[:2] != ["skdpgen", "bench"] or "--output" not in arguments:
            continue
        if "--figure" in arguments:  # a figure is for the reader, not for the page
            at = arguments.index("--figure")
            del arguments[at : at + 2]
        arguments[arguments.index("--output") + 1] = str(DOC.parent / arguments[arguments.index("--output") + 1])
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            main([*arguments[1:], "--only-finished"])
        tables += ["\n".join(line for line in printed.getvalue().splitlines() if line.startswith("|"))]
    return "\n\n".join(tables).replace(" ± ", "\u00a0±\u00a0") + "\n"  # not broken between lines


def _fill(match, folder, process):
    skip, language, code, output = match.groups()
    if skip:
        return match.group()
    printed = _shell(code, folder) if language == "sh" else _ask(code, process)
    block = match.group()[: len(match.group()) - len(output or "")]
    return block if output is None else f"{block}\n```text\n{_clean(printed, folder)}\n```\n"


def _environment():
    paths = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": paths, "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1", "PYTHONUTF8": "1"}


def _python(folder):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", _DRIVER], cwd=folder, text=True, env=_environment(), **pipes)


def _ask(code, process):
    import json

    process.stdin.write(json.dumps(code) + "\n")
    process.stdin.flush()
    lines = []
    while (line := process.stdout.readline()) != "\0\n":
        if not line:
            raise RuntimeError(f"a block failed:\n{code}")
        lines.append(line)
    return "".join(lines)


def _shell(code, folder):
    command = ["bash", "-euo", "pipefail", "-c", code]
    # no terminal: commands ask nothing
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE}
    return subprocess.run(command, cwd=folder, text=True, env=_environment(), check=True, **pipes).stdout


def _clean(printed, folder):
    """Remove the name of the temporary folder and trailing spaces."""
    return "\n".join(line.rstrip() for line in printed.replace(f"{folder}/", "").strip("\n").splitlines())


def run_example(path):
    """Run an example as CI does, and write its page of the gallery."""
    name, source = path.stem, path.read_text(encoding="utf-8")
    words = ast.get_docstring(ast.parse(source))
    title, _, about = words.partition("\n\n")
    with tempfile.TemporaryDirectory() as folder:
        start = _cpu_seconds()
        done = subprocess.run(
            [sys.executable, "-W", "error", str(path)],
            cwd=folder, text=True, stdout=subprocess.PIPE, check=True, env={**_environment(), "TMPDIR": folder},
        )  # fmt: skip
        seconds = _cpu_seconds() - start
        pictures = sorted(Path(folder).rglob("*.png"))
        for k, picture in enumerate(pictures):
            (GALLERY / f"{name}{k or ''}.png").write_bytes(picture.read_bytes())
        printed = re.sub(re.escape(folder) + r"/(tmp\w+/)?", "", done.stdout)
    shown = [f"![{title}]({name}{k or ''}.png)\n" for k in range(len(pictures))]
    lines = [
        f"<!-- written by doc/run.py from examples/{path.name} {digest(path)} -->",
        f"# {title.rstrip('.')}\n",
        *([about + "\n"] if about else []),
        *shown,
        f"```{{literalinclude}} ../../examples/{path.name}\n:language: python\n:start-at: import\n```\n",
        f"`python examples/{path.name}` printed, in {seconds:.0f} s of one core ({date.today()}, Python "
        f"{platform.python_version()}; the noise differs in every run):\n",
        f"```text\n{_clean(printed, folder)}\n```\n",
    ]
    (GALLERY / f"{name}.md").write_text("\n".join(lines), encoding="utf-8")


def run_notebook(path, write=True):
    """Run a notebook, and write its outputs and its page of the gallery."""
    notebooks.run(path, write=write)
    if write:
        (GALLERY / f"{path.stem}.md").write_text(notebooks.page(path, GALLERY), encoding="utf-8")


def _cpu_seconds():
    times = os.times()
    return times.children_user + times.children_system


def main(names):
    if "--check" in names:
        for path in sorted(EXAMPLES.glob("*.ipynb")):
            run_notebook(path, write=False)
        return
    pages = [DOC / f"{name}.md" for name in RUN_PAGES]
    paths = [*pages, *sorted(EXAMPLES.glob("*.py")), *sorted(EXAMPLES.glob("*.ipynb"))]
    known = {path.stem for path in [*paths, *DOC.glob("*.md")]}
    if unknown := [name for name in names if name not in known]:
        sys.exit(f"no page or example of the name {unknown[0]!r}; give --check, or names such as quickstart")
    for path in sorted(DOC.glob("*.md")):
        if not names or path.stem in names:
            write_tables(path)
    for path in paths:
        if names and path.stem not in names:
            continue
        start = time.perf_counter()
        {".md": run_page, ".py": run_example, ".ipynb": run_notebook}[path.suffix](path)
        print(f"{path.stem}: {time.perf_counter() - start:.1f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
