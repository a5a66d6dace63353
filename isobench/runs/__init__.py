"""A run: its key, its folder, its record, its state."""
