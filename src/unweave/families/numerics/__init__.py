"""Numerics that several families share: gamma functions, packed matrices, the Wishart's sums."""
