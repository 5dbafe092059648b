"""The hub client library, which is an optional dependency."""

from __future__ import annotations

from ninfer_formats.errors import UsageError


def require_client() -> None:
    """Raise UsageError, naming the command that installs it, when huggingface_hub is not there."""
    try:
        import huggingface_hub
    except ImportError as error:
        raise UsageError(
            "this needs the package huggingface_hub",
            got=str(error),
            remedy="install it with: pip install 'ninfer[hub]'",
        ) from error
    del huggingface_hub
