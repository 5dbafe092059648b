"""`ninfer doctor`: whether this machine can run an engine, and what to do where not."""
