"""Command line tools: thin commands over the format and engine packages, imported lazily."""
