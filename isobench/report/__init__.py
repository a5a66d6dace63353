"""Tables, comparisons, claims and pages, made of the records of runs."""
