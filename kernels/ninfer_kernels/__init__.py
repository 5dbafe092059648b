"""Triton operations: tensors in, tensors out; no model, file or engine is known here."""
