"""HTML of a report: text that is escaped, tables, pictures as data, and the page around them. Nothing is fetched."""

from __future__ import annotations

import base64
import hashlib
import html
import io
import re
import warnings

from ..utils.printing import plain_number, printable

_STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0; font: 1rem/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; color: #1c1c1c; background: #fff; }
main, header { max-width: 70rem; margin: 0 auto; padding: 0 1.25rem; }
.banner { background: #8b1a1a; color: #fff; padding: 1rem 1.25rem; }
.banner p { max-width: 67.5rem; margin: .25rem auto; }
.banner strong { font-size: 1.2rem; }
h1 { font-size: 1.7rem; margin: 1.2rem 0 .3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.3rem; margin: 2.2rem 0 .5rem; border-bottom: 2px solid #ddd; padding-bottom: .2rem; }
h3 { font-size: 1rem; margin: 0 0 .3rem; }
h2, article { scroll-margin-top: 4rem; }
nav { position: sticky; top: 0; z-index: 1; background: #fff; border-bottom: 1px solid #ddd; }
nav ul { max-width: 70rem; margin: 0 auto; padding: .45rem 1.25rem; list-style: none; }
nav li { display: inline-block; margin: 0 1.1rem .1rem 0; }
[hidden] { display: none !important; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; margin: .5rem 0 1rem; font-size: .92rem; }
caption { text-align: left; font-weight: 600; padding: .3rem 0; }
th, td { text-align: left; padding: .3rem .7rem; border-bottom: 1px solid #ddd; vertical-align: top; }
thead th { border-bottom: 2px solid #888; }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
figure { margin: 1rem 0; }
figure img { max-width: 100%; height: auto; display: block; }
figcaption { color: #444; font-size: .92rem; }
.leak { border-left: 4px solid #8b1a1a; padding: .2rem .8rem; color: #5c1010; font-size: .92rem; }
a { color: #0b4f8a; }
.skip { position: absolute; left: -100rem; }
.skip:focus { left: 1rem; top: .5rem; background: #fff; padding: .4rem; }
li { overflow-wrap: anywhere; }
summary { cursor: pointer; font-weight: 600; }
details caption { position: absolute; left: -100rem; }
details { margin: .5rem 0; }
.tiles { display: flex; flex-wrap: wrap; gap: .8rem; padding: 0; margin: 1rem 0; list-style: none; }
.tiles li { flex: 1 1 9.4rem; max-width: 17rem; border: 1px solid #ccc; border-top: 5px solid #777; }
.tiles li { padding: .5rem .8rem; }
.tiles li.close { border-top-color: #14532d; }
.tiles li.fair { border-top-color: #b7791f; }
.tiles li.far { border-top-color: #8b1a1a; }
.tiles span { display: block; color: #444; font-size: .88rem; }
.tiles strong { font-size: 1.55rem; font-variant-numeric: tabular-nums; }
.cards { display: flex; flex-wrap: wrap; align-items: stretch; gap: .8rem; margin: .8rem 0; }
.card { flex: 1 1 20rem; max-width: 22rem; min-width: 0; border: 1px solid #ddd; padding: .6rem .7rem; }
.card:target { outline: 3px solid #0b4f8a; }
.card h3 { display: flex; justify-content: space-between; gap: .6rem; }
.card h3 span { overflow-wrap: anywhere; }
.card svg { display: block; width: 100%; height: auto; max-width: 26rem; }
.card ul { margin: .3rem 0 0; padding: 0; list-style: none; color: #444; font-size: .82rem; }
.score { font-weight: 600; padding: 0 .45rem; border-radius: .2rem; background: #eee; }
.score.close { background: #dcefe2; color: #14532d; }
.score.fair { background: #fbecc8; color: #6b4100; }
.score.far { background: #f8dada; color: #7a1414; }
.legend .key { display: inline-block; width: 1.4rem; height: .8rem; margin: 0 .2rem 0 .6rem; vertical-align: -1px; }
.legend .real { background: #a0b6d0; }
.legend .synthetic { border: 2px solid #c44e00; }
.find { position: sticky; top: 2.4rem; background: #fff; padding: .4rem 0; z-index: 1; }
.find input { font: inherit; padding: .25rem .5rem; width: 20rem; max-width: 100%; border: 1px solid #777; }
.index { columns: 14rem; padding: 0; list-style: none; font-size: .92rem; }
footer { max-width: 70rem; margin: 2rem auto; padding: 0 1.25rem 2rem; color: #555; font-size: .9rem; }
.calm { background: #14532d; }
@media (max-width: 64rem) {
  table { font-size: .82rem; }
  th, td { padding: .3rem .35rem; }
}
@media print {
  .banner { color: #000; background: #fff; border: 3px solid #8b1a1a; }
  .calm { border-color: #14532d; }
  nav, .skip, .find { display: none; }
  .scroll { overflow: visible; }
  main, header { max-width: none; padding: 0; }
  table { font-size: .7rem; }
  th, td { padding: .2rem .35rem; overflow-wrap: break-word; }
  tr, figure, .card { break-inside: avoid; }
  h2 { break-after: avoid; }
}
"""
# Nothing from anywhere: no font, no picture but those inside the page, and no script but the one named by its digest.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
# Hides what the box does not name, and opens what is folded where a link leads. It reads and sends nothing else;
# without it the page lacks the box alone.
SEARCH = """
"use strict";
const box = document.querySelector(".find input"), said = document.querySelector(".find output");
const named = Array.from(document.querySelectorAll("[data-name]"));
const groups = Array.from(document.querySelectorAll("details.group"));
const total = named.filter((item) => item.tagName === "ARTICLE").length;
function find() {
  const words = box.value.trim().toLowerCase();
  let count = 0;
  for (const item of named) {
    item.hidden = !item.dataset.name.includes(words);
    count += item.tagName === "ARTICLE" && !item.hidden;
  }
  for (const group of groups) {
    group.hidden = !group.querySelector("[data-name]:not([hidden])");
    if (words && !group.hidden) group.open = true;
  }
  said.textContent = words ? count + " of " + total + " columns" : "";
}
function reveal() {
  for (let part = document.getElementById(location.hash.slice(1)); part; part = part.parentElement) {
    if (part.tagName === "DETAILS") part.open = true;
  }
}
if (box) {
  document.querySelector(".find").hidden = false;
  box.addEventListener("input", find);
}
addEventListener("hashchange", reveal);
reveal();
"""


def text(value):
    """Return any value as escaped text, without characters that do not show as themselves."""
    return html.escape(printable(value))


def paragraph(words):
    """Return a paragraph of plain text."""
    return f"<p>{text(words)}</p>"


def leak(*shown):
    """Return what publication of a section would reveal, by the docstrings of its metrics and pictures."""
    from ..metrics import leak_note

    notes = dict.fromkeys(map(leak_note, shown))
    notes = [note for note in notes if not any(note != other and note in other for other in notes)]
    notes = " ".join(notes).replace("``", "")
    return f'<p class="leak"><strong>Publication.</strong> {text(notes)}</p>'


def table(caption, header, rows):
    """Return a table; the first cell of a row heads it, numbers are set to the right."""
    head = "".join(f'<th scope="col">{text(name)}</th>' for name in header)
    body = "\n".join(f"<tr>{_row(row)}</tr>" for row in rows)
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{text(caption)}"><table>'
        f"<caption>{text(caption)}</caption>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )


def _row(row):
    cells = [f'<th scope="row">{text(row[0])}</th>']
    for value in row[1:]:
        if isinstance(value, float):
            cells.append(f'<td class="number">{"" if value != value else plain_number(value)}</td>')
        elif isinstance(value, int):
            cells.append(f'<td class="number">{value:,}</td>')
        else:
            cells.append(f"<td>{_breakable(text(value))}</td>")
    return "".join(cells)


def _breakable(escaped):
    """Escaped text in which a very long word, such as a SHA-256, may be broken: it would push columns off the page."""
    return re.sub(r"\w{40,}", lambda found: "<wbr>".join(re.findall(r"\w{1,16}", found[0])), escaped)


def bullets(items):
    """Return a list of plain texts."""
    return "<ul>\n" + "\n".join(f"<li>{text(item)}</li>" for item in items) + "\n</ul>"


def details(summary, content, *, opened=False, css=None):
    """Return content that is folded away at first, unless it is `opened`."""
    head = f"<details{'' if css is None else f' class={css}'}{' open' if opened else ''}>"
    return f"{head}<summary>{text(summary)}</summary>\n{content}\n</details>"


def box(label):
    """Return a box to search by name, which `SEARCH` shows and obeys: it hides whatever is not named by its words."""
    field = '<input type="search" autocomplete="off"/>'
    return f'<p class="find" hidden><label>{text(label)} {field}</label> <output></output></p>'


def tiles(items):
    """Return the main figures at a glance.

    `items`: texts; `css` colours the tile, and is no information that the text lacks.
    """
    listed = "\n".join(
        f'<li class="{css}"><span>{text(name)}</span><strong>{text(value)}</strong><span>{text(note)}</span></li>'
        for name, value, note, css in items
    )
    return f'<ul class="tiles">\n{listed}\n</ul>'


def section(identifier, title, *parts):
    """Return a section with a heading, as `page` takes it: identifier, title, HTML."""
    inner = "\n".join(part for part in parts if part)
    heading = f'<h2 id="{identifier}">{text(title)}</h2>'
    return identifier, title, f'<section aria-labelledby="{identifier}">\n{heading}\n{inner}\n</section>'


def figure(draw, size, alt, caption):
    """Draw with matplotlib and return the picture as data inside the page.

    `draw`: ``draw(ax)``, on axes that are a whole figure. `size`: inches. `alt`: what the picture shows, for who does
    not see it.
    """
    import matplotlib
    from matplotlib.figure import Figure

    # without pyplot: no window system is asked for; the salt keeps equal pictures equal
    with matplotlib.rc_context({"svg.hashsalt": "skdpgen", "svg.fonttype": "path"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        canvas = Figure(figsize=size, layout="constrained", dpi=110)
        draw(canvas.subplots())
        buffer = io.BytesIO()
        canvas.savefig(buffer, format="svg", metadata={"Date": None})
    data = base64.b64encode(buffer.getvalue()).decode("ascii")
    return (
        f'<figure><img src="data:image/svg+xml;base64,{data}" alt="{text(alt)}" '
        f'width="{round(size[0] * 96)}" height="{round(size[1] * 96)}">'
        f"<figcaption>{text(caption)}</figcaption></figure>"
    )


def page(title, banner, sections, footer, *, label="Not to be published", css="", script=None):
    """Return the whole page.

    `banner`: what everyone must read first; the first sentence is strong. `label`: what the banner is, for who does not
    see it. `css`: class of the banner, beside its own. `script`: the one script that may run; None forbids all.
    """
    policy, run = _POLICY, ""
    if script is not None:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
        policy, run = f"{policy}; script-src 'sha256-{digest}'", f"<script>{script}</script>\n"
    links = "\n".join(f'<li><a href="#{key}">{text(name)}</a></li>' for key, name, _ in sections)
    warning = "\n".join(
        [f"<p><strong>{text(banner[0])}</strong></p>", *(f"<p>{text(line)}</p>" for line in banner[1:])]
    )
    body = "\n".join(content for _, _, content in sections)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>{text(title)}</title>
<link rel="icon" href="data:,">
<style>{_STYLE}</style>
</head>
<body>
<a class="skip" href="#content">To the contents</a>
<div class="{f"banner {css}".strip()}" role="note" aria-label="{text(label)}">
{warning}
</div>
<header><h1>{text(title)}</h1></header>
<nav aria-label="Sections"><ul>
{links}
</ul></nav>
<main id="content">
{body}
</main>
<footer>{text(footer)}</footer>
{run}</body>
</html>
"""
