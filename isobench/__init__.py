"""isobench: isotropy calibration of transformer embeddings, reproduced and compared under one protocol."""

__version__ = "0.1.0"
