"""The Responses API: bodies, conversations, answers and the store of both."""
