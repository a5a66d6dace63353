"""Analyses of pretrained encoders or of finished runs: they compute rows, and show them as tables and figures."""
