"""Accepting and rejecting drafted tokens so that the output follows the model's own law."""

from ninfer_kernels.speculation.op import accept_drafts
from ninfer_kernels.speculation.verdict import Drafts, Verdict, allocate_verdict

__all__ = ["Drafts", "Verdict", "accept_drafts", "allocate_verdict"]
