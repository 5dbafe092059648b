"""Bodies of requests: JSON text to models that name the field at fault."""
