"""The settings: their types, bounds and defaults, and how a command line becomes a config."""
