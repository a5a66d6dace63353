"""Serve every folder above: errors, files, signals, the terminal."""
