"""A simulated network on the page.

specification   what is simulated
simulation      the source: runs the world at the viewers' pace, with faults on buttons
watch           what one observer of all agents sees
sums            the posterior, its moments, and series over the hops
answers         questions of the page: one agent, a certificate, an erasure, the report
"""
