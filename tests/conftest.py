"""What every test may count on."""

from __future__ import annotations

import signal

# A shell starts background jobs with SIGINT ignored, and children inherit that: Ctrl-C, which
# several laws are about, would then do nothing.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
