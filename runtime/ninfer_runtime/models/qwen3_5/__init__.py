"""Qwen3.5, 3.6 and 3.8: dense and mixture-of-experts text, MTP head, vision tower."""
