"""Conversion of Hugging Face checkpoints into artifacts."""
