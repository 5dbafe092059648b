"""The engine: artifact, weights, state, rounds, server."""
