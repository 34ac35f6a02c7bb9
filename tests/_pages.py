"""Pages of the report, read as HTML and in a browser."""

from __future__ import annotations

import os
import shutil
import subprocess
from html.parser import HTMLParser

import numpy as np
import pytest

CHROMIUM = next(
    filter(
        None,
        map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome", "chromium-headless-shell")),
    ),
    None,
)
needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium on this machine: the structure of the page is tested above"
)


class Page(HTMLParser):
    """Tags in order with their attributes, and the text between them."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.text, self.open = [], "", []
        self.feed(html.replace("<wbr>", ""))  # a place for a line to break, and no text
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text += data + " "

    def all(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]


def chromium(folder, *options):
    """Run a headless browser that reaches no network and says nothing on its console; return its output."""
    arguments = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
        "--force-device-scale-factor=1", "--enable-logging=stderr", "--v=0",
        "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={folder / 'profile'}",
    ]  # fmt: skip
    environment = {**os.environ, "HOME": str(folder)}
    done = subprocess.run(
        [*arguments, *options], capture_output=True, text=True, timeout=120, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert not said, said
    return done.stdout


def pixels(path, folder, height=4200):
    """Screenshot of a page in a window 1200 wide, integers of shape (height, 1200, 3)."""
    from matplotlib.image import imread

    shot = folder / "shot.png"
    chromium(folder, f"--window-size=1200,{height}", f"--screenshot={shot}", path.as_uri())
    shown = np.round(imread(shot)[..., :3] * 255).astype(int)
    assert shown.shape == (height, 1200, 3)
    return shown
