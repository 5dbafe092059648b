"""Rounds: who runs, what runs, what comes out."""
