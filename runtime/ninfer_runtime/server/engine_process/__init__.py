"""The process that owns the engine: rounds, and what must be decided between two of them."""
