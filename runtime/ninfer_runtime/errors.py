"""Errors of the engine: what, where, got and wanted, and the next command."""

from __future__ import annotations

from ninfer_formats.errors import NinferError


class StartupError(NinferError):
    """The engine cannot start with this artifact, these settings or this machine."""


class RequestError(NinferError):
    """One request cannot be carried out; the engine and every other request go on."""
