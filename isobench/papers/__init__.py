"""The folders of papers: their configs, descriptions and printed numbers."""
