"""The port, taken before anything is loaded."""

from __future__ import annotations

import socket

from ninfer_formats.errors import NinferError, printable

_BACKLOG = 2048


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; connections wait until they are accepted.

    NinferError, one line, for an address that cannot be had.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or "not an address"
        raise NinferError(f"--host cannot be used: {why}", got=host) from None
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        # Without this a second server could bind the same port and fail much later.
        sock.listen(_BACKLOG)
    except OSError as error:
        sock.close()
        raise NinferError(
            f"cannot listen: {error.strerror}", where=f"{printable(host)} port {port}",
            remedy="use another --port or --host, or stop what has it",
        ) from None  # fmt: skip
    sock.set_inheritable(False)
    return sock


def show_address(sock: socket.socket) -> str:
    """Return the address of a listening socket as a browser takes it."""
    host, port = sock.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{host}:{port}"
