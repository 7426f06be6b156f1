"""Comparisons with other software, in an environment of their own: `make test-slow`."""
