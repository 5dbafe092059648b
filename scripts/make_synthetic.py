"""Write a synthetic model: legal random weights and a usable tokenizer, from a seed.

    python scripts/make_synthetic.py qwen3.8-27b:nvfp4:layers=8 --artifact model.ninfer
    python scripts/make_synthetic.py qwen3.5-0.8b:bf16 --checkpoint folder

`docs/synthetic.md` explains specifications. Exit codes: 0 fine, 1 not possible as asked, 2 bad
usage, 130 interrupted; nothing half-written stays behind.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from ninfer_formats.errors import NinferError
from ninfer_formats.write_plan import DEFAULT_MAX_FILE_BYTES, choose_artifact_id
from ninfer_tools.console import format_bytes, show_progress
from ninfer_tools.synthetic.specification import SyntheticSpec, parse_spec


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        # One line, like every other error.
        self.exit(2, f"{self.prog}: {message}; --help shows the options\n")


def _positive(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return value


def _build_parser() -> argparse.ArgumentParser:
    first, _, _ = (__doc__ or "").partition("\n")
    parser = _Parser(prog="make_synthetic", description=first, allow_abbrev=False)
    parser.add_argument("spec", metavar="SPEC", help="MODEL:PROFILE[:key=value]...")
    output = parser.add_mutually_exclusive_group(required=True)
    output.add_argument("--artifact", type=Path, metavar="FILE", help="write a .ninfer artifact")
    output.add_argument("--checkpoint", type=Path, metavar="DIR", help="write a checkpoint folder")
    parser.add_argument("--container", type=int, choices=(2, 3), help="container version (3)")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N (cpu)")
    parser.add_argument("--seed", type=int, help="instead of the specification's seed")
    parser.add_argument("--threads", type=_positive, help="drawing threads (one per processor)")
    parser.add_argument("--max-file-bytes", type=_positive, metavar="N", help="split larger files")
    parser.add_argument("--artifact-id", help="derived, random or 32 hex digits (derived)")
    parser.add_argument("--force", action="store_true", help="replace an existing output")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the script; return its exit code."""
    parser = _build_parser()
    options = parser.parse_args(arguments)
    artifact_only = (options.container, options.max_file_bytes, options.artifact_id)
    if options.checkpoint is not None and artifact_only != (None, None, None):
        parser.error("--container, --max-file-bytes and --artifact-id go with --artifact")
    begin = time.perf_counter()
    try:
        size = _write(options, _choose_spec(options))
    except NinferError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except OSError as error:
        name = error.filename or options.artifact or options.checkpoint
        print(f"{name}: {error.strerror or error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; no output was left behind", file=sys.stderr)
        return 130
    seconds = time.perf_counter() - begin
    rate = size / seconds / 1e9
    output = options.artifact or options.checkpoint
    print(f"wrote {output}: {format_bytes(size)} in {seconds:.1f} s ({rate:.2f} GB/s)")
    return 0


def _choose_spec(options: argparse.Namespace) -> SyntheticSpec:
    spec = parse_spec(options.spec)
    if options.seed is None:
        return spec
    # Through the parser, for its check of the range.
    checked = parse_spec(f"{spec.model}:{spec.profile}:seed={options.seed}")
    return replace(spec, seed=checked.seed)


def _write(options: argparse.Namespace, spec: SyntheticSpec) -> int:
    output: Path = options.artifact or options.checkpoint
    with _show_bytes(output.name) as progress:
        if options.checkpoint is not None:
            from ninfer_tools.synthetic.checkpoint import write_checkpoint

            return write_checkpoint(
                spec,
                output,
                force=options.force,
                device=options.device,
                threads=options.threads,
                progress=progress,
            )
        from ninfer_tools.synthetic.artifact import write_synthetic

        return write_synthetic(
            spec,
            output,
            container=options.container or 3,
            device=options.device,
            force=options.force,
            threads=options.threads,
            max_file_bytes=options.max_file_bytes or DEFAULT_MAX_FILE_BYTES,
            artifact_id=choose_artifact_id(options.artifact_id or "derived"),
            progress=progress,
        )


@contextmanager
def _show_bytes(title: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that takes (bytes done, bytes in all) and moves a progress bar."""
    with ExitStack() as stack:
        advance: Callable[[int], None] | None = None
        shown = 0

        def report(done: int, total: int) -> None:
            nonlocal advance, shown
            advance = advance or stack.enter_context(show_progress(total, title))
            advance(done - shown)
            shown = done

        yield report


if __name__ == "__main__":
    sys.exit(main())
