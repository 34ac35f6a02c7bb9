"""Sphinx: `sphinx-build -W --keep-going -b html doc build/doc` (with the extra `docs`)."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from sphinx.util import logging

import skdpgen

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "doc"))

from dead_links import dead_links  # noqa: E402

project = "skdpgen"
author = copyright = "the skdpgen developers"
release = version = skdpgen.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.mathjax", "numpydoc"]
exclude_patterns = ["_build"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
html_theme = "furo"
html_title = f"skdpgen {release}"
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autosummary_generate = True
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
templates_path = ["_templates"]
nitpicky = False


# ---- pages of the repository, joined here ------------------------------------------------------------------------
# The README is a page of the site, and the list of pages gets its table of contents.
TOCTREE = """

```{{toctree}}
:hidden:

{pages}
```
"""
PAGES = (
    "readme",
    "quickstart",
    "user_guide",
    "command_line",
    "gallery/index",
    "public_and_charged",
    "units",
    "pitfalls",
    "choosing_epsilon",
    "publishing",
    "choosing",
    "moment_synthesizer",
    "privae",
    "dp2vae",
    "gans",
    "training",
    "proofs_mended",
    "auditing",
    "metrics",
    "api",
    "reference",
    "benchmarks",
    "comparison",
    "glossary",
    "changelog",
)


# Every public class with a `fit` is in the reference, with those of these methods that it has.
METHODS = (
    *("fit", "plan", "sample", "transform", "inverse_transform", "predict", "predict_proba", "score_samples", "score"),
    *("get_covariance", "save", "as_frame"),
)


INHERITED = "set_fit_request, set_output, get_metadata_routing, fit_transform, set_inverse_transform_request"


def reference_of_estimators():
    """One entry for each estimator, for the reference page."""
    for name in sorted(skdpgen.__all__):
        found = getattr(skdpgen, name)
        if hasattr(found, "fit") and hasattr(found, "plan"):
            methods = ", ".join(method for method in METHODS if hasattr(found, method))
            yield f".. autoclass:: {name}\n   :members: {methods}\n   :inherited-members: BaseEstimator\n"
            yield f"   :exclude-members: {INHERITED}\n\n"


def join_pages(app, name, source):
    if name == "reference":
        source[0] = source[0].replace(".. ESTIMATORS\n", "".join(reference_of_estimators()))
        return
    text = (ROOT / "README.md").read_text(encoding="utf-8") if name == "readme" else source[0]
    folder = ROOT if name == "readme" else (Path(app.srcdir) / name).parent
    if name == "index":
        found = sorted({path.stem for path in Path(app.srcdir).glob("*.md")} - {"index", *PAGES})
        text += TOCTREE.format(pages="\n".join([*PAGES, *found]))
    source[0] = re.sub(r"\[([^\]]+)\]\(([^)#:]+)(#[^)]*)?\)", lambda match: _link(match, folder, name), text)


def _link(match, folder, name):
    """Keep links to other pages, name files of the repository, and warn of missing files."""
    text, path, anchor = match.group(1), match.group(2), match.group(3) or ""
    target = (folder / path).resolve()
    page = ROOT / "doc" if name == "readme" else folder  # the folder of the joined page
    if not target.exists():
        logging.getLogger(__name__).warning("dead link to %s", path, location=name)
        return text
    if target == ROOT / "README.md":
        target = ROOT / "doc" / "readme.md"
    if target == ROOT / "examples":
        target = ROOT / "doc" / "gallery" / "index.md"
    if target.parent == ROOT / "examples":
        target = ROOT / "doc" / "gallery" / f"{target.stem}.md"
    if target.is_relative_to(ROOT / "doc"):
        return f"[{text}]({Path(os.path.relpath(target, page)).as_posix()}{anchor})"
    shown = target.relative_to(ROOT).as_posix()
    return text if "`" in text or text.strip("/") == shown else f"{text} (`{shown}`)"


def escape_underscores(app, what, name, obj, options, lines):
    """Escape the underscore that ends a fitted attribute, which is a link in reStructuredText."""
    for k, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            lines[k] = re.sub(r"(?<![\w`*.\\])([a-z]\w*)_(?![\w`*])", r"\1\\_", line)


def warn_of_dead_links(app, error):
    """After the build, warn of each dead link of the built pages, anchors included."""
    if error is None and app.builder.name == "html":
        for page, link in dead_links(Path(app.outdir)):
            logging.getLogger(__name__).warning("%s: dead link to %s", page, link)


def setup(app):
    app.connect("source-read", join_pages)
    app.connect("autodoc-process-docstring", escape_underscores, priority=900)  # after numpydoc
    app.connect("build-finished", warn_of_dead_links)
