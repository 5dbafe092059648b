"""The HTTP server: three dialects over one resident engine."""
