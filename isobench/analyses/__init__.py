"""Tables and figures that need no training, or only runs that are there: one file an analysis."""
