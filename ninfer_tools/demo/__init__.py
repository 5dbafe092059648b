"""The bundled demo checkpoint: unpacking it, and the evaluation sets that go with it."""
