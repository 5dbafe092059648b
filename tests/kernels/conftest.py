"""Kernels run in Triton's interpreter when there is no CUDA device."""

from __future__ import annotations

import os
import sys

import pytest
import torch

HAS_CUDA = torch.cuda.is_available()

if not HAS_CUDA:
    # Triton decides at import, for its own library too, so a late setting would be half a setting.
    loaded_without = "triton" in sys.modules and not os.environ.get("TRITON_INTERPRET")
    assert not loaded_without, "triton was imported before tests/kernels/conftest.py"
    os.environ["TRITON_INTERPRET"] = "1"
    from builders.triton_interpreter import repair_interpreter

    repair_interpreter()


@pytest.fixture(autouse=True)
def few_threads():
    """Tiny tensors: more threads than two only get in each other's way."""
    before = torch.get_num_threads()
    torch.set_num_threads(min(before, 2))
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def device() -> str:
    """Where kernels are tested: the GPU, or the CPU by way of the interpreter."""
    return "cuda" if HAS_CUDA else "cpu"
