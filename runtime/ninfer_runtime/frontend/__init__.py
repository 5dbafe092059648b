"""Text, messages and media to token ids and patches, and back."""
