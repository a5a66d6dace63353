"""Plan the runs of a sweep, and carry them out by workers of this machine or of a cluster."""
