"""The engine part of scripts/gpu_check.py."""
