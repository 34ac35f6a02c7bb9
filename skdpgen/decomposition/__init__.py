"""Principal components of released moments."""

from __future__ import annotations

from ._dp_pca import DPPCA, PrincipalComponents, principal_components

__all__ = ["DPPCA", "PrincipalComponents", "principal_components"]
