"""The output gate of attention: attn * sigmoid(gate)."""

from ninfer_kernels.sigmoid_gate.op import sigmoid_gate

__all__ = ["sigmoid_gate"]
