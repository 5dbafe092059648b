"""Inventories: what objects an artifact of a model and profile holds, built by rule."""
