"""A running network on the page, from what its agents tell.

network      the source: follows the agents, asks them, sends what has changed
link         follows the agents of a folder at a bounded rate
hops         when the token moved, by the agents' times
states       agents, token, waits and summary
posterior    the posterior in coarse numbers, and how it changes
erasures     preview, request, progress, certificates
details      one agent: facts, receipts, influence
"""
