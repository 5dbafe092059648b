"""Tools a conversation offers, and the calls of them that an answer makes."""
