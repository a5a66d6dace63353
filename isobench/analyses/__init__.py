"""Tables and figures of pretrained embeddings or of finished runs: one file an analysis."""
