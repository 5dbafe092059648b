"""One line for a mapped file that is cut short while it is read (rule V-176).

The system ends a process that reads past the end of such a file by the signal SIGBUS. Python
handlers of it never run, because the instruction that failed is tried again first.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from typing import Any

MESSAGE = (
    b"\na source file was cut short, or its disk failed, while it was read; no output file was "
    b"left behind\n"
)
EXIT_CODE = 1
_Handler = ctypes.CFUNCTYPE(None, ctypes.c_int)


def report_mapped_faults() -> Any:
    """End the process with a line and exit code 1 where SIGBUS would kill it.

    Returns what must stay alive as long as the process. The handler does nothing that a fault in
    the middle of a copy could disturb: it writes and ends.
    """
    if not hasattr(signal, "SIGBUS"):
        return None

    def end(number: int) -> None:
        with contextlib.suppress(OSError):
            os.write(2, MESSAGE)
        os._exit(EXIT_CODE)

    handler = _Handler(end)
    with contextlib.suppress(OSError, AttributeError):
        install = ctypes.CDLL(None).signal
        install.restype, install.argtypes = ctypes.c_void_p, (ctypes.c_int, _Handler)
        install(int(signal.SIGBUS), handler)
    return handler
