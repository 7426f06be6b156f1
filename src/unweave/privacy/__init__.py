"""Differential privacy: noise that hides one record in everything a network publishes.

The parts, one per module: what a manifest states (`terms`), exact draws (`discrete_gaussian`), what
a draw costs (`accounting`), how much a record can move a sum (`sensitivity`), these together
(`mechanism`), the durable account of an agent (`ledger`), what both do to a value before it is
masked (`release`), and posteriors that know of the noise (`noisy`). `terms` and `ledger` load no
statistics.
"""
