"""Synthetic models: legal random weights, a usable tokenizer and whole checkpoints from a seed."""
