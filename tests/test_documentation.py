"""Links of the documentation are not dead, and its outputs and tables are not older than their sources."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

import skdpgen

ROOT = Path(skdpgen.__file__).parent.parent
PAGES = [path for path in (ROOT / "README.md", *sorted((ROOT / "doc").rglob("*.md"))) if path.exists()]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_link_to_a_file_is_dead(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    links = {link for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) if ":" not in link}
    dead = sorted(link for link in links if not (page.parent / link).exists())
    assert not dead, f"{page.name}: {', '.join(dead)}"


def _script(name):
    """Load a script of the folder `doc`, which is not a package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "doc" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_the_gallery_shows_what_the_example_is_today(example):
    """After a change of an example run `python doc/run.py NAME`: outputs and pictures are those of a real run."""
    page = ROOT / "doc" / "gallery" / f"{example.stem}.md"
    text = page.read_text(encoding="utf-8")
    assert f"examples/{example.name} {_script('run').digest(example)} " in text, "the page is older than its example"
    fits = re.search(r"\.fit\(|audit\(", example.read_text(encoding="utf-8"))
    assert not fits or "noise_multiplier" in text.rsplit("```text", 1)[1]  # it ends with the ledger
    for picture in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text):
        assert (page.parent / picture).stat().st_size > 1000
    assert f"]({example.stem}.md)" in (page.parent / "index.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_a_notebook_is_stored_with_the_outputs_of_one_run(notebook):
    """After a change of a notebook run `python doc/run.py NAME`; CI runs it by `python doc/run.py --check`."""
    page, notebooks = ROOT / "doc" / "gallery" / f"{notebook.stem}.md", _script("notebooks")
    cells = [cell for cell in notebooks.read(notebook)["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error" or output.get("name") == "stderr"]
    assert "charged" in notebooks.text_of(outputs[-1]["data"]["text/plain"])  # it ends with the ledger
    text = page.read_text(encoding="utf-8")
    assert f"examples/{notebook.name} {notebooks.digest(notebook)} " in text, "the page is older than its notebook"
    assert f"]({notebook.stem}.md)" in (page.parent / "index.md").read_text(encoding="utf-8")
    for picture in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text):
        assert (page.parent / picture).stat().st_size > 1000


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_test_that_a_page_names_is_there(page):
    text = page.read_text(encoding="utf-8")
    for path, _, name in re.findall(r"`(tests/[\w/]+\.py)(::(\w+))?`", text):
        source = (ROOT / path).read_text(encoding="utf-8")
        assert f"def {name}" in source, f"{path} has no {name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tables_of_results_are_those_that_the_commands_beside_them_print(page):
    """Run `python doc/run.py PAGE` after new lines in doc/results."""
    script, text = _script("run"), page.read_text(encoding="utf-8")
    found = [(match["tables"], script.tables_of(match["code"])) for match in script.RESULTS.finditer(text)]
    assert len(found) == text.count("<!-- results -->")
    for shown, printed in found:
        assert shown == printed


def test_dead_links_of_built_pages_are_found(tmp_path):
    (tmp_path / "one.html").write_text(
        '<a href="two.html#there"></a><a href="two.html#gone"></a><a href="three.html"></a>'
        '<a href="#here" id="here"></a><a href="https://example.org/x"></a><img src="no.png">'
    )
    (tmp_path / "two.html").write_text('<p id="there"></p>')
    found = [link for _, link in _script("dead_links").dead_links(tmp_path)]
    assert found == ["no.png", "three.html", "two.html#gone"]


def test_every_estimator_in_the_table_of_the_readme_is_found_where_the_table_says():
    rows = (ROOT / "README.md").read_text(encoding="utf-8").partition("| Estimator |")[2].partition("\n\n")[0]
    names = re.findall(r"`([\w.]+)`", "".join(row.split("|")[1] for row in rows.splitlines()[2:]))
    assert len(names) > 12
    for name in names:
        module, _, name = f"skdpgen.{name.removeprefix('skdpgen.')}".rpartition(".")
        assert name in importlib.import_module(module).__all__
