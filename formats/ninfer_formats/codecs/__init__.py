"""Codecs: values to codes and scales and back, vectorised and bit-exact."""
