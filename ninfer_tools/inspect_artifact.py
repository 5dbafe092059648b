"""`ninfer inspect`: says what a file is, what it holds and what can load it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ninfer_formats.errors import UsageError
from ninfer_tools.artifact_source import open_source, require_one

if TYPE_CHECKING:
    from ninfer_formats.reader import Artifact
    from ninfer_tools.inspection.section import Section


@dataclass(frozen=True)
class Request:
    """The options of one call; globs are None where their listing is not asked for."""

    file: Path | None
    synthetic: str | None = None
    magic: bool = False
    objects: str | None = None
    parameters: str | None = None
    resources: bool = False
    extract: tuple[str, ...] = ()
    verify: bool = False
    digest: bool = False
    force: bool = False
    max_directory_bytes: int = 256 << 20

    @property
    def asks_for_payload(self) -> bool:
        return bool(self.extract) or self.verify or self.digest

    @property
    def asks_for_sections(self) -> bool:
        listings = self.objects is not None or self.parameters is not None or self.resources
        return listings or self.asks_for_payload


def run(json_output: bool, **options: Any) -> int:
    """Carry out one call and return its exit code; options are the fields of `Request`."""
    options["extract"] = tuple(options.get("extract") or ())
    request = Request(**options)
    _check_request(request, json_output)
    if request.magic and request.file is not None:
        return _print_magic(request.file, json_output)
    artifact = open_source(request.file, request.synthetic, request.max_directory_bytes)
    if not request.asks_for_sections:
        return _print_overview(artifact, request.synthetic is None, json_output)
    return _print_sections(artifact, request, json_output)


def _check_request(request: Request, json_output: bool) -> None:
    require_one(request.file, request.synthetic)
    if request.synthetic is not None and (request.asks_for_payload or request.magic):
        raise UsageError(
            "a synthetic artifact has a directory only",
            want="no --magic, --verify, --digest or --extract",
            remedy="write it to a file with scripts/make_synthetic.py first",
        )
    if request.magic and request.asks_for_sections:
        raise UsageError("--magic stands alone")
    if request.force and not request.extract:
        raise UsageError("--force belongs to --extract")
    if json_output and any(text.endswith("=-") for text in request.extract):
        raise UsageError("--json and --extract ROLE=- both write to standard output")


def _print_magic(path: Path, json_output: bool) -> int:
    # The version must be there at once, also for a broken directory: nothing else is imported.
    from ninfer_tools.inspection.magic import read_version

    version = read_version(path)
    magic = f"NINFER {version:04d}"
    if json_output:
        from ninfer_tools.console import print_json

        print_json({"path": str(path), "magic": magic, "version": version})
    else:
        print(magic)
    return 0


def _print_overview(artifact: Artifact, stored: bool, json_output: bool) -> int:
    from ninfer_tools.inspection.overview import describe

    record = describe(artifact, stored)
    if json_output:
        from ninfer_tools.console import print_json

        print_json(record)
    else:
        from ninfer_tools.inspection.overview_text import render

        print(render(record))
    return 0


def _print_sections(artifact: Artifact, request: Request, json_output: bool) -> int:
    from ninfer_tools.console import print_json

    code = 0
    record: dict[str, Any] = {"path": str(artifact.path), "version": artifact.version}
    for section in _sections(artifact, request):
        code = max(code, section.code)
        record[section.name] = section.record
        if not json_output and section.text:
            print(section.text)
    if json_output:
        print_json(record)
    return code


def _sections(artifact: Artifact, request: Request) -> Iterator[Section]:
    from ninfer_tools.inspection import listing

    if request.objects is not None:
        yield listing.list_objects(artifact, request.objects)
    if request.parameters is not None:
        yield listing.list_parameters(artifact, request.parameters)
    if request.resources:
        yield listing.list_stored_files(artifact, request.synthetic is None)
    if request.extract:
        from ninfer_tools.inspection.extraction import extract

        yield extract(artifact, request.extract, request.force)
    if request.verify:
        from ninfer_tools.inspection.verification import verify

        yield verify(artifact)
    if request.digest:
        from ninfer_tools.inspection.digests import digest

        yield digest(artifact)
