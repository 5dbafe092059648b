"""What a migration did or would do, for people and as JSON."""

from __future__ import annotations

from typing import Any

from ninfer_formats.reader import Artifact
from ninfer_tools.console import format_bytes, print_json
from ninfer_tools.migrate.draft import Stored
from ninfer_tools.migrate.emission import Emission
from ninfer_tools.migrate.planning import Request


def describe(
    request: Request, artifact: Artifact, emission: Emission | None, dry_run: bool
) -> dict[str, Any]:
    record: dict[str, Any] = {
        "input": str(artifact.path),
        "input_version": artifact.version,
        "output": str(request.output),
        "version": request.to,
        "dry_run": dry_run,
        "unchanged": emission is None,
        "dropped": list(request.drop),
        "added": [group for group, _ in request.add],
    }
    if emission is None:
        return {**record, "objects": len(artifact.objects), "bytes": artifact.file_bytes}
    copied = sum(
        emission.plan.objects[name].bytes
        for name, content in emission.contents.items()
        if isinstance(content, Stored) and name in emission.plan.objects
    )
    return {
        **record,
        "identity": None if emission.identity is None else str(emission.identity),
        "objects": len(emission.plan.objects),
        "bytes": emission.plan.bytes,
        "bytes_copied_verbatim": copied,
        "files": {file.name: file.bytes for file in emission.plan.files},
        "lost": list(emission.losses),
    }


def show(report: dict[str, Any], json_output: bool) -> None:
    if json_output:
        print_json(report)
        return
    verb = "would write" if report["dry_run"] else "wrote"
    if report["unchanged"]:
        print(f"nothing to do: already version {report['version']}; {verb} an identical copy")
        print(f"  {report['output']}: {format_bytes(report['bytes'])}")
        return
    identity = f", {report['identity']}" if report["identity"] else ""
    print(f"{verb} version {report['version']}{identity}: {report['objects']} objects")
    for name, size in report["files"].items():
        print(f"  {name}: {format_bytes(size)} ({size:,} bytes)")
    print(f"  copied verbatim: {format_bytes(report['bytes_copied_verbatim'])}")
    for item in report["lost"]:
        print(f"  lost in version 2: {item}")
