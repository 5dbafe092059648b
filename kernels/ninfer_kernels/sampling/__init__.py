"""Sampling on the device: penalties, candidates, choice of tokens, log probabilities."""

from ninfer_kernels.sampling.op import (
    apply_penalties,
    candidate_probabilities,
    choose_tokens,
    record_tokens,
    select_candidates,
)
from ninfer_kernels.sampling.parameters import (
    ACCEPT,
    CANDIDATES,
    DRAFT,
    NOT_FINITE,
    NOT_NARROW,
    RESAMPLE,
    SAMPLE,
    Candidates,
    CandidateWorkspace,
    Penalties,
    SamplingParameters,
    allocate_candidates,
    allocate_workspace,
)
from ninfer_kernels.sampling.reference import token_logprobs

__all__ = [
    "ACCEPT",
    "CANDIDATES",
    "DRAFT",
    "NOT_FINITE",
    "NOT_NARROW",
    "RESAMPLE",
    "SAMPLE",
    "CandidateWorkspace",
    "Candidates",
    "Penalties",
    "SamplingParameters",
    "allocate_candidates",
    "allocate_workspace",
    "apply_penalties",
    "candidate_probabilities",
    "choose_tokens",
    "record_tokens",
    "select_candidates",
    "token_logprobs",
]
