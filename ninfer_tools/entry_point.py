"""The console script: streams, signals and one-line errors around the command line."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn


class Stopped(KeyboardInterrupt):
    """A signal that ends the process; unwinding removes unfinished outputs as Ctrl-C does."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__()


def main() -> None:
    """Run `ninfer`: whatever happens, one line on stderr and a documented exit code."""
    try:
        _prepare_process()
        code = _run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        silence_stdout()
        code = 0
    except KeyboardInterrupt as stop:
        number = stop.number if isinstance(stop, Stopped) else signal.SIGINT
        print("interrupted; no output file was left behind", file=sys.stderr)
        code = 128 + number
    except OSError as error:
        silence_stdout()
        print(f"standard output: {error.strerror or error}", file=sys.stderr)
        code = 1
    sys.exit(code)


def _prepare_process() -> None:
    # Names and paths may hold what the terminal's encoding does not.
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), _stop)


def _stop(number: int, frame: Any) -> NoReturn:
    raise Stopped(number)


def _run(arguments: list[str]) -> int:
    from ninfer_tools.cli import app

    arguments = complete_globs(_move_debug_first(arguments)) or ["--help"]
    sys.argv[1:] = arguments
    try:
        return app(arguments, standalone_mode=False) or 0
    except Exception as error:
        message = getattr(error, "format_message", None)
        if message is None or "--debug" in arguments:
            raise
        return _show_usage_error(message(), getattr(error, "exit_code", 2), arguments)


def _show_usage_error(message: str, code: int, arguments: list[str]) -> int:
    """Print what the argument parser found wrong, on one line, and as JSON when asked for."""
    line = " ".join(message.split())
    if "--json" in arguments:
        print(json.dumps({"error": {"what": line, "exit_code": code}}))
    command = next((item for item in arguments if not item.startswith("-")), "")
    print(f"{line}; see `ninfer {command} --help`".replace("  ", " "), file=sys.stderr)
    return code


def _move_debug_first(arguments: list[str]) -> list[str]:
    rest = [item for item in arguments if item != "--debug"]
    return rest if len(rest) == len(arguments) else ["--debug", *rest]


def complete_globs(arguments: list[str]) -> list[str]:
    """Let `--objects` and `--parameters` stand without a glob: everything is listed then."""
    completed = []
    for index, item in enumerate(arguments):
        completed.append(item)
        following = arguments[index + 1] if index + 1 < len(arguments) else "-"
        if item in ("--objects", "--parameters") and (
            following.startswith("-") or Path(following).is_file()
        ):
            completed.append("*")
    return completed


def silence_stdout() -> None:
    """Let whatever is still written to standard output vanish."""
    # What is left in the buffer cannot be written; the interpreter must not try once more.
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
