"""Find dead links of built pages: `python doc/dead_links.py build/doc`. Checks files alone, without network."""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

__all__ = ["dead_links"]


class _Page(HTMLParser):
    """Anchors and links of a page."""

    def __init__(self, text):
        super().__init__()
        self.names, self.links = set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name == "id" or (tag == "a" and name == "name"):
                self.names.add(value)
            elif name in ("href", "src") and value:
                self.links.add(value)


def dead_links(folder):
    """Yield (page, link) for each link to a file or an anchor that is not there.

    Parameters
    ----------
    folder : Path
        Folder of the built pages. Links to other folders and hosts are not checked.

    Yields
    ------
    page, link : str
    """
    folder = Path(folder).resolve()
    pages = {path: _Page(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.html"))}
    for path, page in pages.items():
        for link in sorted(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            missing = not target.is_file()
            anchor = unquote(parts.fragment)
            if missing or (anchor and target in pages and anchor not in pages[target].names):
                yield path.relative_to(folder).as_posix(), link


if __name__ == "__main__":
    found = list(dead_links(sys.argv[1]))
    for page, link in found:
        print(f"{page}: {link}")
    sys.exit(bool(found))
