"""Train one run, or the runs of a plan, and write their records."""
