"""What is told of a walk: the story of its chapter, and what happens at each hop."""

from __future__ import annotations

from collections.abc import Iterator

from unweave.text import count
from unweave.web.paper.walk import LEAVER, PaperWalk, shown_number
from unweave.web.sentences import Level

__all__ = ["hop_sentences", "story"]

Told = tuple[str, Level, str | None]  # a sentence, its level, and the agent that it is about


def story(walk: PaperWalk) -> str:
    """What the chapter teaches, at this hop."""
    walked, lesson = walk.walked, walk.chapter.lesson
    if walked is None:
        return f"{lesson} The curves are computed now."
    found = walked.results
    if walk.chapter.figure == "fig3":
        covered, hops = int(found["covered_at"]), walk.at + 1
        goal = f"On average it takes {found['expected_cover']:.0f} hops to see everybody."
        if covered and hops >= covered:
            return (
                f"{lesson} After {covered} hops this walk has seen all agents: the sum is the "
                "posterior of all data, bit for bit, and the KL is exactly 0. What remains in "
                "the mean comes from walks that have not seen everybody."
            )
        return (
            f"{lesson} Whoever the walk comes to adds its factor, once. {goal} The band holds "
            "75% of all walks."
        )
    if walked.request is None:
        return (
            f"{lesson} It ends at a median KL of {shown_number(found['retrain_median'])}; "
            f"subtracting ends at {shown_number(found['subtract_median'])}, after a few hops."
        )
    if not walk.requested:
        return (
            f"{lesson} These are the last hops of learning: all ten agents are in the sum. The "
            "KL is to the posterior without agent 10."
        )
    if not walk.removed:
        return (
            f"{lesson} The request was made at hop 0. The token is only forwarded; nobody "
            "learns until the walk comes to agent 10, after 9.1 hops on average."
        )
    rest = [
        f"{name}: {shown_number(found[key])}"
        for name, key in (
            ("subtracting", "subtract_median"),
            ("refining", "refine_median"),
            ("retraining", "retrain_median"),
            ("the best that the family can do", "floor"),
        )
        if key in found
    ]
    return f"{lesson} Agent 10 is out. Where the walks end, in the median: {'; '.join(rest)}."


def hop_sentences(walk: PaperWalk) -> Iterator[Told]:
    """What happened at this hop."""
    walked, column = walk.walked, walk.at
    assert walked is not None
    k, kl = int(walked.path[column]), float(walked.kl[column])
    name, shown = walked.topology.agents[k], shown_number(kl)
    # The figure counts from the request, the page from the first hop of the walk.
    since = "" if walked.request is None else " after the request"
    hop = f"Hop {walked.hop(column)}{since}"
    before = walked.included(column - 1) if column else walked.inside
    now = walked.included(column)
    if k in now and k not in before:
        text = f"{hop}: {name} is visited for the first time; {count(len(now), 'agent')} in the sum"
        yield f"{text}, KL {shown}.", "info", name
        if len(now) + len(walked.absent) == len(walked.topology.agents):
            exact = " The sum is exact." if kl == 0.0 else ""
            yield f"All agents are in the sum: KL {shown}.{exact}", "good", None
    if column == walked.request:
        yield f"The erasure of {LEAVER} was requested.", "warning", LEAVER
    if column == walked.removed_at():
        was = shown_number(float(walked.kl[column - 1]))
        text = f"{hop}: {LEAVER} took its factor out. The KL went from {was} to {shown}."
        yield text, "good", LEAVER
    if column == walked.settled_at() and walked.offset < 1:
        text = (
            f"{hop}: from here on the KL stays at {shown}. The best that the family can do: "
            f"{shown_number(walked.results['floor'])} in the median."
        )
        yield text, "good", None
    if column == walked.last:
        yield f"The walk has ended, at KL {shown}.", "good", None
