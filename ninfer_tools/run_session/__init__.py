"""One generation from the command line, or a conversation of them."""
