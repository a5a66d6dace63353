"""A report in each of its forms: page (templates/), terminal, Markdown, LaTeX."""
