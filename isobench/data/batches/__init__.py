"""Tokens, and the order in which they become batches."""
