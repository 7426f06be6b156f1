"""The live page: a network or a simulation in a browser, on this machine.

view         what the page shows: one JSON value, and its types
source       where views come from: the port between the server and the next three
live/        a running network
simulated/   a simulation
paper/       the walks of the paper's experiments
feed         views as server-sent events: a snapshot, then changes
app          the HTTP application: page, events, requests
protection   host names, origins, the access code, the headers of every answer
server       serves the application in a thread
tls          the certificate of a page beyond loopback
sentences    events of the agents' logs as sentences
timeline     sentences, folded and kept
layout       places of the agents in the picture
densities    curves of a posterior
patches      differences of views
static/      the page itself: HTML, CSS, JavaScript, vendored uPlot
"""
