"""Bundles: runs of an experiment in one folder that can be published, checked and merged."""
