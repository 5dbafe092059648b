"""The port of the server."""

from __future__ import annotations

import socket

from ninfer_tools.serve_session.listening import listen


def test_accepted_connections_ask_whether_their_client_is_there():
    """A client's machine that vanished is noticed within a minute; nobody is cut for reading
    slowly, which a limit of unacknowledged data would do."""
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            read = [
                accepted.getsockopt(socket.IPPROTO_TCP, option)
                for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            ]
            assert read[0] + read[1] * read[2] <= 60
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 0
