"""Activation divisors from the largest inputs that a text gives (rules V-100 to V-116)."""
