"""Say what the other folders may know of a task: what its kind answers, and which columns its predictions have."""
