"""The Messages API of Anthropic: bodies, conversations and answers."""
