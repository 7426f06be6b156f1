"""The live page: a network or a simulation in a browser, on this machine.

view         what the page shows: one JSON value, and its types
source       where views come from: a running network, a simulation, the paper's experiments
feed         views as server-sent events: a snapshot, then changes
app          the HTTP application: page, events, requests
protection   host names, origins, the access code, the headers of every answer
server       serves the application in a thread
sentences    events of the agents' logs as sentences
timeline     sentences, folded and kept
layout       places of the agents in the picture
static/      the page itself: HTML, CSS, JavaScript, vendored uPlot
"""
