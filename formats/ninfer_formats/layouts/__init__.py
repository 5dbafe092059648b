"""Layouts: where the planes of an encoded tensor lie, how they are packed and cut into rows."""
