"""`ninfer check`: which engine can load an artifact, why not, and the way out."""

from __future__ import annotations

from pathlib import Path

from ninfer_formats.errors import UsageError, printable
from ninfer_formats.reader import Artifact
from ninfer_tools.artifact_source import open_source
from ninfer_tools.compatibility.engines import ALL, ENGINE_NAMES, THIS, judge, judge_all
from ninfer_tools.compatibility.verdict import Verdict
from ninfer_tools.console import format_table, print_json

# Names come from the file and a reason names every missing object: long, but one plain line.
_LINE_LIMIT = 1_000_000


def run(
    *,
    file: Path | None,
    synthetic: str | None,
    engine: str,
    max_directory_bytes: int,
    json_output: bool,
) -> int:
    """Print the verdict; return 0 if the engine (with `all`: any engine) loads it, else 1."""
    _check_engine(engine)
    artifact = open_source(file, synthetic, max_directory_bytes)
    if engine == ALL:
        return _report_all(artifact, judge_all(artifact), json_output)
    verdict = judge(artifact, engine)
    if json_output:
        print_json({**_describe(artifact), **verdict.as_record()})
    else:
        _print_verdict(artifact, verdict)
    return 0 if verdict.compatible else 1


def _check_engine(engine: str) -> None:
    # Before the file is opened: a typing error must not cost a second.
    if engine not in (*ENGINE_NAMES, ALL):
        raise UsageError("unknown engine", got=engine, want=", ".join((*ENGINE_NAMES, ALL)))


def _describe(artifact: Artifact) -> dict[str, object]:
    return {
        "file": str(artifact.path),
        "version": artifact.version,
        "identity": None if artifact.identity is None else str(artifact.identity),
        "bytes": artifact.file_bytes,
    }


def _print_verdict(artifact: Artifact, verdict: Verdict) -> None:
    engine = "this release" if verdict.engine == THIS else verdict.engine
    words = "can be loaded" if verdict.compatible else "cannot be loaded"
    _print_line(f"{artifact.path}: {words} by {engine}")
    for reason in verdict.reasons:
        _print_line(f"  {reason}")
    for text in verdict.notices:
        _print_line(f"  note: {text}")
    if verdict.remedies:
        print("way out:")
        for command in verdict.remedies:
            _print_line(f"  {command}")
    elif not verdict.compatible:
        print("way out: none known")


def _report_all(artifact: Artifact, verdicts: tuple[Verdict, ...], json_output: bool) -> int:
    loads = any(verdict.compatible for verdict in verdicts)
    if json_output:
        records = [verdict.as_record() for verdict in verdicts]
        print_json({**_describe(artifact), "compatible": loads, "engines": records})
    else:
        _print_line(f"{artifact.path}: container version {artifact.version}")
        print(format_table([(v.engine, *_shorten(v)) for v in verdicts]))
    return 0 if loads else 1


def _shorten(verdict: Verdict) -> tuple[str, str]:
    if verdict.compatible:
        return "yes", ""
    return "no", printable(verdict.reasons[0], 110)


def _print_line(text: str) -> None:
    print(printable(text, _LINE_LIMIT))
