"""Migration: one artifact rewritten in another container version, groups added and dropped."""
