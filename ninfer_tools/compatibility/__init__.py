"""Which engine can load an artifact, why not, and the way out."""
