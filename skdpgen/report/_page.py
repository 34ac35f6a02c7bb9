"""HTML of a report: text that is escaped, tables, pictures as data, and the page around them. Nothing is fetched."""

from __future__ import annotations

import base64
import html
import io
import warnings

from ..utils.printing import printable

__all__ = ["bullets", "details", "figure", "leak", "page", "paragraph", "section", "table"]

_STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0; font: 1rem/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; color: #1c1c1c; background: #fff; }
main, header { max-width: 70rem; margin: 0 auto; padding: 0 1.25rem; }
.banner { background: #8b1a1a; color: #fff; padding: 1rem 1.25rem; }
.banner p { max-width: 67.5rem; margin: .25rem auto; }
.banner strong { font-size: 1.2rem; }
h1 { font-size: 1.7rem; margin: 1.2rem 0 .3rem; }
h2 { font-size: 1.3rem; margin: 2.2rem 0 .5rem; border-bottom: 2px solid #ddd; padding-bottom: .2rem; }
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
footer { max-width: 70rem; margin: 2rem auto; padding: 0 1.25rem 2rem; color: #555; font-size: .9rem; }
.calm { background: #14532d; }
@media print {
  .banner { color: #000; background: #fff; border: 3px solid #8b1a1a; }
  .calm { border-color: #14532d; }
  nav, .skip { display: none; }
  .scroll { overflow: visible; }
  main, header { max-width: none; padding: 0; }
  table { font-size: .7rem; }
  th, td { padding: .2rem .35rem; overflow-wrap: break-word; }
  tr, figure { break-inside: avoid; }
  h2 { break-after: avoid; }
}
"""
# Nothing from anywhere: no script, no font, no picture but those inside the page.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def text(value):
    """Return any value as escaped text, without characters that do not show as themselves."""
    return html.escape(printable(value))


def paragraph(words, *, css=None):
    """Return a paragraph of plain text."""
    return f"<p{'' if css is None else f' class={css}'}>{text(words)}</p>"


def leak(*shown):
    """Return what publication of a section would reveal, by the docstrings of its metrics and pictures."""
    from ..metrics import leak_note

    notes = " ".join(dict.fromkeys(map(leak_note, shown))).replace("``", "")
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
            cells.append(f'<td class="number">{"" if value != value else format(value, ".4g")}</td>')
        elif isinstance(value, int):
            cells.append(f'<td class="number">{value:,}</td>')
        else:
            cells.append(f"<td>{text(value)}</td>")
    return "".join(cells)


def bullets(items):
    """Return a list of plain texts."""
    return "<ul>\n" + "\n".join(f"<li>{text(item)}</li>" for item in items) + "\n</ul>"


def details(summary, content, *, opened=False):
    """Return content that is folded away at first, unless it is `opened`."""
    return f"<details{' open' if opened else ''}><summary>{text(summary)}</summary>\n{content}\n</details>"


def section(identifier, title, *parts):
    """Return a section with a heading, as `page` takes it: identifier, title, HTML."""
    inner = "\n".join(part for part in parts if part)
    heading = f'<h2 id="{identifier}">{text(title)}</h2>'
    return identifier, title, f'<section aria-labelledby="{identifier}">\n{heading}\n{inner}\n</section>'


def figure(draw, size, alt, caption):
    """Draw with matplotlib and return the picture as data inside the page.

    Parameters
    ----------
    draw : callable
        ``draw(ax)``, on axes that are a whole figure.
    size : (float, float)
        Inches.
    alt : str
        What the picture shows, for who does not see it.
    caption : str
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


def page(title, banner, sections, footer, *, label="Not to be published", css=""):
    """Return the whole page.

    Parameters
    ----------
    title : str
    banner : sequence of str
        What everyone must read first; the first sentence is strong.
    sections : sequence of (identifier, title, html)
    footer : str
    label : str, default="Not to be published"
        What the banner is, for who does not see it.
    css : str, default=""
        Class of the banner, beside its own.
    """
    links = "\n".join(f'<li><a href="#{key}">{text(name)}</a></li>' for key, name, _ in sections)
    warning = "\n".join(
        [f"<p><strong>{text(banner[0])}</strong></p>", *(f"<p>{text(line)}</p>" for line in banner[1:])]
    )
    body = "\n".join(content for _, _, content in sections)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
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
<header><h1>{text(title)}</h1>
<nav aria-label="Sections"><ul>
{links}
</ul></nav></header>
<main id="content">
{body}
</main>
<footer>{text(footer)}</footer>
</body>
</html>
"""
