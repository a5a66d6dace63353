"""Data and encoders that come as Python packages."""
