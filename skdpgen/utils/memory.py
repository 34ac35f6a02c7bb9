"""The memory of this machine: a fact about the machine, not about any data."""

from __future__ import annotations

import os

__all__ = ["physical_memory"]


def physical_memory():
    """Return the bytes of memory of this machine, or None where the system does not tell."""
    try:
        pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return None
    return pages * size if pages > 0 and size > 0 else None
