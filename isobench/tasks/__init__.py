"""What the other folders know of a task: the questions that its kind answers, and what its predictions look like."""
