"""The .ninfer container: read, write and understand artifacts of versions 1, 2 and 3."""
