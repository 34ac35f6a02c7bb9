"""Links of the documentation lead somewhere: files of this repository, looked up without a network."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import skdpgen

ROOT = Path(skdpgen.__file__).parent.parent
PAGES = [path for path in (ROOT / "README.md", *sorted((ROOT / "doc").glob("*.md"))) if path.exists()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_link_to_a_file_is_dead(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    links = {link for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) if ":" not in link}
    dead = sorted(link for link in links if not (page.parent / link).exists())
    assert not dead, f"{page.name}: {', '.join(dead)}"
