"""Vectors of frozen encoders: diagnose them, fit and keep calibrations, probe them."""
