"""Tests of unweave."""
