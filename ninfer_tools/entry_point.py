"""The console script: streams, signals and one-line errors around the command line."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

from ninfer_tools.streams import (
    escape_unprintable,
    open_missing_streams,
    outlive_reader,
    silence,
)

# Commands that go on with their work when nobody reads what they print any more.
_LASTING = frozenset({"convert", "verify", "migrate", "pull", "serve"})
# Commands that read weights through mapped files.
_MAPPING = frozenset({"convert", "verify"})


class Stopped(KeyboardInterrupt):
    """A signal that ends the process; unwinding removes unfinished outputs as Ctrl-C does."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__()


def main() -> None:
    """Run `ninfer`: whatever happens, one line on stderr and a documented exit code."""
    code = 0
    try:
        kept = _prepare_process()  # noqa: F841 - a handler that C code calls
        code = _run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:  # the code stays what the command said, 0 when it was not at its end
        silence_stdout()
    except KeyboardInterrupt as stop:
        code = tell_interrupt(stop)
    except OSError as error:
        silence_stdout()
        print(f"standard output: {error.strerror or error}", file=sys.stderr)
        code = 1
    sys.exit(code)


def serve() -> None:
    """Run `ninfer-serve`: `ninfer serve` with the same options."""
    sys.argv[1:1] = ["serve"]
    main()


def tell_interrupt(stop: KeyboardInterrupt) -> int:
    """Print what a command says of its interruption, by the notes of `stop`; return the code."""
    lines = getattr(stop, "__notes__", ["interrupted; no output file was left behind"])
    print("\n".join(lines), file=sys.stderr)
    return 128 + (stop.number if isinstance(stop, Stopped) else signal.SIGINT)


def _prepare_process() -> Any:
    """Set streams and signals up; return what must stay alive."""
    open_missing_streams()
    escape_unprintable()
    command = next((item for item in sys.argv[1:] if not item.startswith("-")), "")
    if command in _LASTING:
        sys.stdout, sys.stderr = outlive_reader(sys.stdout), outlive_reader(sys.stderr)
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), _stop)
    if command not in _MAPPING:
        return None
    from ninfer_tools.mapped_faults import report_mapped_faults

    return report_mapped_faults()


def _stop(number: int, frame: Any) -> NoReturn:
    raise Stopped(number)


def _run(arguments: list[str]) -> int:
    from ninfer_tools.cli import app

    arguments = complete_globs(_move_debug_first(arguments)) or ["--help"]
    sys.argv[1:] = arguments
    try:
        return app(arguments, prog_name="ninfer", standalone_mode=False) or 0
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
    with contextlib.suppress(OSError, ValueError):
        silence(sys.stdout.fileno())
