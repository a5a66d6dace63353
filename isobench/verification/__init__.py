"""Verify a folder of results: compute again what can be computed, and name what does not agree."""
