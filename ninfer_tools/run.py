"""`ninfer run`: answers from an artifact, on the CPU or on one GPU."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ninfer_formats.errors import UsageError, printable
from ninfer_formats.reader import Artifact
from ninfer_tools.artifact_source import open_source, require_one
from ninfer_tools.run_session.answer_settings import AnswerSettings, choose_settings
from ninfer_tools.run_session.conversation import make_message, read_media
from ninfer_tools.run_session.options import RunOptions, check_options
from ninfer_tools.run_session.request_file import FileRequest, read_request

if TYPE_CHECKING:
    from ninfer_runtime.frontend.frontend import Frontend

_INTERRUPTED = 130
_PACKAGES = ("torch", "tokenizers", "jinja2", "PIL")


def run(
    *,
    file: Path | None,
    synthetic: str | None,
    options: RunOptions,
    max_directory_bytes: int,
    json_output: bool,
) -> int:
    """Answer what the options ask; return 0, or 130 when Ctrl-C ended the answer."""
    require_one(file, synthetic)
    check_options(options)
    _require_packages()
    try:
        artifact = open_source(file, synthetic, max_directory_bytes)
        if options.prompt_ids is not None:
            return _run_ids(artifact, options)
        return _run_text(artifact, options)
    except KeyboardInterrupt as stop:
        stop.add_note("interrupted")
        raise


def _require_packages() -> None:
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"not installed: {', '.join(missing)}", remedy="pip install 'ninfer[serve]'"
        )


def _run_ids(artifact: Artifact, options: RunOptions) -> int:
    """Answer token ids as they are; an artifact without a tokenizer will do."""
    from ninfer_runtime.frontend.prompt import Prompt
    from ninfer_runtime.frontend.tokenizer import load_tokenizer
    from ninfer_tools.run_session.loading import load_engine
    from ninfer_tools.run_session.session import Session

    ids = _parse_ids(options.prompt_ids or "")
    has_tokenizer = any(role == "tokenizer.json" for _, role in artifact.resources)
    tokenizer = load_tokenizer(artifact) if has_tokenizer else None
    settings = _read_settings(artifact, options, {})
    vision = bool(options.engine.vision)
    engine = load_engine(artifact, options.engine, vision=vision, quiet=options.json_output)
    session = Session(engine, tokenizer, settings, options.json_output)
    return _exit_code(session.ask(Prompt(ids), thinking=False).finish)


def _run_text(artifact: Artifact, options: RunOptions) -> int:
    """Answer a prompt, a file of messages, or line by line."""
    from ninfer_runtime.frontend.frontend import load_frontend
    from ninfer_runtime.models.qwen3_5.model import read_geometry
    from ninfer_tools.run_session.chat import run_chat
    from ninfer_tools.run_session.loading import load_engine
    from ninfer_tools.run_session.session import Session

    frontend = load_frontend(artifact, read_geometry(artifact))
    if not options.chat:
        return _run_once(artifact, options, frontend)
    settings, flag = _read_settings(artifact, options, {}), options.engine.vision
    vision = bool(options.images or options.videos)
    vision |= frontend.media is not None if flag is None else flag
    engine = load_engine(artifact, options.engine, vision=vision, quiet=False)
    return run_chat(Session(engine, frontend.tokenizer, settings), frontend, options)


def _run_once(artifact: Artifact, options: RunOptions, frontend: Frontend) -> int:
    from ninfer_runtime.frontend.messages import list_media, prepare_messages
    from ninfer_tools.run_session.loading import load_engine
    from ninfer_tools.run_session.session import Session, ask_chat

    request, folder, spare = _read_request(options)
    settings = _read_settings(artifact, options, request.parameters)
    if settings.top_logprobs is not None and not options.json_output:
        raise UsageError("log probabilities need --json", path=options.messages)
    prepare_messages(request.messages)  # what is wrong is said before the model is loaded
    parts = list_media(request.messages)
    if parts and options.engine.vision is False:
        raise UsageError("images need the vision tower", remedy="leave --no-vision out")
    reader = frontend.media
    media = [] if reader is None else read_media(parts, reader, folder, spare)
    vision = bool(parts or options.engine.vision)
    engine = load_engine(artifact, options.engine, vision=vision, quiet=options.json_output)
    session = Session(engine, frontend.tokenizer, settings, options.json_output)
    return _exit_code(ask_chat(session, frontend, request.messages, media, request.tools).finish)


def _read_request(options: RunOptions) -> tuple[FileRequest, Path, dict[str, tuple[Path, ...]]]:
    """Return what is asked, the folder of its relative names, and files for parts without one."""
    if options.messages is None:
        message = make_message(options.prompt or "", options.images, options.videos)
        return FileRequest([message]), Path(), {}
    request = read_request(options.messages)
    if request.ignored and not options.json_output:
        names = ", ".join(map(printable, request.ignored))
        print(f"note: {printable(options.messages)}: not used: {names}", file=sys.stderr)
    return request, options.messages.parent, {"image": options.images, "video": options.videos}


def _read_settings(
    artifact: Artifact, options: RunOptions, asked: Mapping[str, Any]
) -> AnswerSettings:
    from ninfer_runtime.frontend.resources import read_json

    preset = read_json(artifact, "generation_config.json") or {}
    return choose_settings(preset, options, asked)


def _parse_ids(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(item) for item in text.split(",") if item.strip())
    except ValueError:
        raise UsageError("not token ids", got=text, want="--prompt-ids 1,2,3") from None


def _exit_code(finish: str) -> int:
    return _INTERRUPTED if finish == "cancelled" else 0
