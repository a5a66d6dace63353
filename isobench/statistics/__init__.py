"""Tests and intervals over seeds and over examples."""
