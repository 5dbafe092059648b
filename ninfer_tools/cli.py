"""The `ninfer` command line: arguments and dispatch only; each command module has `run`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from ninfer_tools.cli_options import (
    Calibrate,
    CalibrationTokens,
    Cap,
    File,
    ForcePlot,
    Json,
    Plot,
    RankingCorpus,
    Recipe,
    SavedCalibration,
    SaveRanking,
    Synthetic,
    add_doctor,
    add_run,
    add_serve,
)

app = typer.Typer(
    name="ninfer",
    help="Convert, inspect, check, migrate, fetch, run and serve .ninfer artifacts.",
    epilog="Exit codes: 0 fine, 1 not usable as asked, 2 not a .ninfer file or bad usage, 130 "
    "interrupted. "
    "Every command takes --debug, which shows the traceback behind an error.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _dispatch(module: str, json_output: bool, **options: Any) -> None:
    """Run a command module and leave with its exit code; errors become one line."""
    from ninfer_formats.errors import NinferError

    try:
        run: Callable[..., int] = import_module(f"ninfer_tools.{module}").run
        code = run(json_output=json_output, **options)
    except NinferError as error:
        code = _show_error(error, json_output)
    except BrokenPipeError:  # here, because the argument parser would make it exit code 1
        from ninfer_tools.entry_point import silence_stdout

        silence_stdout()
        code = 0
    except KeyboardInterrupt as stop:  # likewise, exit code 130 without a word
        from ninfer_tools.entry_point import tell_interrupt

        code = tell_interrupt(stop)
    except MemoryError:
        code = _show_error(NinferError("not enough memory"), json_output)
    except OSError as error:
        if error.filename is None:  # a stream, not a file: `main` knows what to do
            raise
        name = os.fsdecode(error.filename) if not isinstance(error.filename, int) else None
        code = _show_error(NinferError(error.strerror or str(error), path=name), json_output)
    raise typer.Exit(code)


def _show_error(error: Any, json_output: bool) -> int:
    if "--debug" in sys.argv:
        import traceback

        traceback.print_exception(error)
    if json_output:
        record = {
            name: None if (value := getattr(error, name)) is None else str(value)
            for name in ("what", "path", "where", "got", "want", "remedy")
        }
        print(json.dumps({"error": {**record, "exit_code": error.exit_code}}))
    print(str(error), file=sys.stderr)
    return error.exit_code


@app.callback()
def _root(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Options of every command."""


@app.command("inspect")
def inspect_command(
    file: File = None,
    synthetic: Synthetic = None,
    magic: Annotated[
        bool, typer.Option("--magic", help="Only the container version; reads 64 bytes.")
    ] = False,
    objects: Annotated[
        str | None, typer.Option(help="List stored objects whose id matches.", metavar="GLOB")
    ] = None,
    parameters: Annotated[
        str | None, typer.Option(help="List parameters whose name matches.", metavar="GLOB")
    ] = None,
    resources: Annotated[bool, typer.Option("--resources", help="List stored files.")] = False,
    extract: Annotated[
        list[str] | None,
        typer.Option(
            help="Write a stored file to PATH (- for standard output).", metavar="ROLE=PATH"
        ),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read every payload byte and check it is legal.")
    ] = False,
    digest: Annotated[
        bool, typer.Option("--digest", help="SHA-256 of every object and of the files.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Let --extract overwrite.")] = False,
    max_directory_mib: Cap = 256,
    json_output: Json = False,
) -> None:
    """Say what a file is, what it holds and what can load it."""
    _dispatch(
        "inspect_artifact",
        json_output,
        file=file,
        synthetic=synthetic,
        magic=magic,
        objects=objects,
        parameters=parameters,
        resources=resources,
        extract=extract or [],
        verify=verify,
        digest=digest,
        force=force,
        max_directory_bytes=max_directory_mib << 20,
    )


@app.command("check")
def check_command(
    file: File = None,
    synthetic: Synthetic = None,
    engine: Annotated[
        str,
        typer.Option(
            help="upstream-v1, upstream-v2, upstream-v2-dflash2, upstream-v3, this, or all."
        ),
    ] = "this",
    max_directory_mib: Cap = 256,
    json_output: Json = False,
) -> None:
    """Say whether an engine can load a file, why not, and the way out."""
    _dispatch(
        "check_artifact",
        json_output,
        file=file,
        synthetic=synthetic,
        engine=engine,
        max_directory_bytes=max_directory_mib << 20,
    )


@app.command("migrate")
def migrate_command(
    source: Annotated[Path, typer.Argument(metavar="IN", help="Artifact to read.")],
    output: Annotated[str, typer.Argument(metavar="OUT", help="Artifact to write.")],
    to: Annotated[int, typer.Option("--to", help="Container version: 2 or 3.", min=2, max=3)] = 3,
    chat_template: Annotated[
        Path | None, typer.Option(help="Replace the chat template by this file.", metavar="FILE")
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option(help="Leave out dflash2, dflash, vision or mtp.", metavar="GROUP"),
    ] = None,
    add: Annotated[
        list[str] | None,
        typer.Option(help="Take a group from another artifact.", metavar="GROUP=FILE"),
    ] = None,
    max_file_bytes: Annotated[
        int, typer.Option(help="Split version 3 output into files of at most this size.", min=8192)
    ] = 32_000_000_000,
    artifact_id: Annotated[
        str, typer.Option(help="derived (same input, same bytes), random, or 32 hex digits.")
    ] = "derived",
    identity: Annotated[
        str | None,
        typer.Option(help="Version 2 identity, where several fit.", metavar="MODEL/WEIGHTS"),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Plan only, write nothing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing OUT.")] = False,
    max_directory_mib: Cap = 256,
    json_output: Json = False,
) -> None:
    """Rewrite an artifact in another container version, or add and drop optional groups."""
    _dispatch(
        "migrate.command",
        json_output,
        source=source,
        output=output,
        to=to,
        chat_template=chat_template,
        drop=drop or [],
        add=add or [],
        max_file_bytes=max_file_bytes,
        artifact_id=artifact_id,
        identity=identity,
        dry_run=dry_run,
        force=force,
        max_directory_bytes=max_directory_mib << 20,
    )


@app.command("pull")
def pull_command(
    target: Annotated[
        str,
        typer.Argument(
            metavar="REPO@REV", help="OWNER/NAME@REVISION, or a short name such as qwen3.8-27b."
        ),
    ],
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILES]...", help="Files or globs; every .ninfer without any."),
    ] = None,
    to: Annotated[Path, typer.Option("--to", help="Folder to write to.", metavar="DIR")] = Path(),
    container: Annotated[
        int | None, typer.Option(help="Short names: container version.", min=1, max=3)
    ] = None,
    drafter: Annotated[
        str | None, typer.Option("--with", help="Short names: dflash2 or dflash.")
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help="Short names: groupwise-int or nvfp4.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace different files.")] = False,
    json_output: Json = False,
) -> None:
    """Download files of a pinned revision, verified; run again to go on after a break."""
    _dispatch(
        "pull",
        json_output,
        target=target,
        files=files or [],
        to=to,
        container=container,
        drafter=drafter,
        weights=weights,
        force=force,
    )


@app.command("convert")
def convert_command(
    source: Annotated[
        str, typer.Argument(metavar="SRC", help="Checkpoint folder, or OWNER/NAME@REVISION.")
    ],
    out: Annotated[str, typer.Option("--out", help="Artifact to write.", metavar="FILE")],
    profile: Annotated[str, typer.Option(help="nvfp4, groupwise-int, fp8 or bf16.")] = "nvfp4",
    sources: Annotated[
        list[str] | None,
        typer.Option(
            "--source", help="A companion: dflash2, dflash, mtp or quantized.", metavar="NAME=SRC"
        ),
    ] = None,
    components: Annotated[
        str | None,
        typer.Option(help="Comma-separated; everything found by default.", metavar="NAMES"),
    ] = None,
    rules: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Format of matching parameters.", metavar="GLOB=FORMAT[:METHOD]"
        ),
    ] = None,
    recipe: Recipe = None,
    calibrate: Calibrate = None,
    calibration: SavedCalibration = None,
    calibration_tokens: CalibrationTokens = None,
    resources: Annotated[
        list[str] | None,
        typer.Option("--resource", help="Replace a frontend file.", metavar="ROLE=FILE"),
    ] = None,
    proposal_rows: Annotated[
        int | None, typer.Option(help="Rows of the shortlist draft head.", min=1)
    ] = None,
    no_proposal: Annotated[
        bool, typer.Option("--no-proposal", help="No shortlist draft head.")
    ] = False,
    ranking: Annotated[
        Path | None,
        typer.Option(help="Token counts for the shortlist, int64.", metavar="FILE.i64"),
    ] = None,
    ranking_corpus: RankingCorpus = None,
    save_ranking: SaveRanking = None,
    name: Annotated[str | None, typer.Option(help="Name of the model in the artifact.")] = None,
    container: Annotated[int, typer.Option(help="Container version.", min=2, max=3)] = 3,
    max_file_bytes: Annotated[
        int, typer.Option(help="Split into files of at most this size.", min=8192)
    ] = 32_000_000_000,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    require_pinned: Annotated[
        bool, typer.Option("--require-pinned", help="Refuse branches and tags of the hub.")
    ] = False,
    manifest: Annotated[
        bool, typer.Option("--manifest", help="Write artifact-manifest.json beside FILE.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Plan only, write nothing.")] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an interrupted conversion.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing FILE.")] = False,
    json_output: Json = False,
) -> None:
    """Turn a Hugging Face checkpoint into an artifact."""
    _dispatch(
        "convert.command",
        json_output,
        source=source,
        out=out,
        profile=profile,
        sources=sources or [],
        components=components,
        rules=rules or [],
        recipe=recipe,
        calibrate=calibrate,
        calibration=calibration,
        calibration_tokens=calibration_tokens,
        resources=resources or [],
        proposal_rows=proposal_rows,
        no_proposal=no_proposal,
        ranking=ranking,
        ranking_corpus=ranking_corpus,
        save_ranking=save_ranking,
        name=name,
        container=container,
        max_file_bytes=max_file_bytes,
        device=device,
        require_pinned=require_pinned,
        manifest=manifest,
        dry_run=dry_run,
        resume=resume,
        force=force,
    )


@app.command("verify")
def verify_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Artifact to check.")],
    against: Annotated[
        str, typer.Option("--against", help="The checkpoint it was made of.", metavar="SRC")
    ],
    sources: Annotated[
        list[str] | None,
        typer.Option("--source", help="Companions, as for convert.", metavar="NAME=SRC"),
    ] = None,
    samples: Annotated[
        int | None, typer.Option(help="Compare only so many rows of each parameter.", min=1)
    ] = None,
    plot: Plot = None,
    force: ForcePlot = False,
    max_directory_mib: Cap = 256,
    json_output: Json = False,
) -> None:
    """Compare every parameter of an artifact with the checkpoint it was made of."""
    _dispatch(
        "verify_against",
        json_output,
        file=file,
        against=against,
        sources=sources or [],
        samples=samples,
        plot=plot,
        force=force,
        max_directory_bytes=max_directory_mib << 20,
    )


@app.command("demo")
def demo_command(
    part: Annotated[
        str, typer.Argument(metavar="[PART]", help="checkpoint or dflash2.", show_default=False)
    ] = "checkpoint",
    path: Annotated[
        bool, typer.Option("--path", help="Print only the folder of PART; unpack it first.")
    ] = False,
    json_output: Json = False,
) -> None:
    """Say what the bundled demo checkpoint is and scores, or where it lies."""
    _dispatch("demo.command", json_output, part=part, path=path)


add_run(app, _dispatch)
add_serve(app, _dispatch)
add_doctor(app, _dispatch)
