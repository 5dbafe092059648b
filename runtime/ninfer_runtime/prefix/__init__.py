"""Prompts that begin like earlier ones go on from what is kept of those."""
