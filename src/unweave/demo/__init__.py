"""The demonstration: five hospitals learn, one of them and a few patients are forgotten, and the
result is compared with a network that never had them.

    story.py     what happens, in memory
    pictures.py  what it looks like; takes posteriors and steps, wherever they come from
    report.py    what is said about it
"""

from __future__ import annotations

from unweave.demo.story import Stage, Story, tell

__all__ = ["Stage", "Story", "tell"]
