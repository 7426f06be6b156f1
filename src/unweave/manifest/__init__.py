"""The manifest `network.toml`: the file that defines a network."""

from __future__ import annotations

from unweave.manifest.custom import PinnedSource
from unweave.manifest.entries import AgentEntry, GraphEntry, ModelEntry, TimeoutsEntry
from unweave.manifest.network import Manifest, load
from unweave.manifest.privacy import PrivacyEntry, PublishEntry

__all__ = [
    "AgentEntry",
    "GraphEntry",
    "Manifest",
    "ModelEntry",
    "PinnedSource",
    "PrivacyEntry",
    "PublishEntry",
    "TimeoutsEntry",
    "load",
]
