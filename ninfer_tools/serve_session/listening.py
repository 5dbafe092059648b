"""The port, taken before anything is loaded."""

from __future__ import annotations

import socket

from ninfer_formats.errors import NinferError, printable

_BACKLOG = 2048
# Seconds of silence before the first question, between questions, and how many stay unanswered.
_KEEPALIVE = {"TCP_KEEPIDLE": 20, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}


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
        _notice_gone_clients(sock)
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


def _notice_gone_clients(sock: socket.socket) -> None:
    """Let accepted connections, which take over these options, end within a minute once the
    client's machine is gone; one that lives and reads slowly, or not at all, stays connected."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def show_address(sock: socket.socket) -> str:
    """Return the address of a listening socket as a browser takes it."""
    host, port = sock.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{host}:{port}"
