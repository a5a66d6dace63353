"""Read the examples of a task, from files, packages or the hub."""
