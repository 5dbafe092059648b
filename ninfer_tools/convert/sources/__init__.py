"""Checkpoints as sources of logical parameters (specs/sources.md)."""
