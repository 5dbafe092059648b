"""Byte-level builders of artifacts for tests; they share no code with the writer."""
