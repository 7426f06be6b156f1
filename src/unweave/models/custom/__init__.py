"""Models of one's own: a log-likelihood in JAX, any tree of parameters, and a normal prior."""

from __future__ import annotations

from unweave.models.custom.model import CustomModel

__all__ = ["CustomModel"]
