"""The model hub: references, pinned snapshots, byte ranges, verified downloads."""
