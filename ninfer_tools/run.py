"""`ninfer run`: answers from an artifact, on the CPU or on one GPU."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ninfer_formats.errors import UsageError
from ninfer_formats.reader import Artifact
from ninfer_tools.artifact_source import open_source, require_one
from ninfer_tools.run_session.conversation import make_message, read_media, read_messages
from ninfer_tools.run_session.options import RunOptions, check_options

if TYPE_CHECKING:
    from ninfer_runtime.engine.engine import Engine
    from ninfer_runtime.frontend.frontend import Frontend
    from ninfer_runtime.frontend.tokenizer import Tokenizer
    from ninfer_tools.run_session.session import Session

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
    artifact = open_source(file, synthetic, max_directory_bytes)
    if options.prompt_ids is not None:
        return _run_ids(artifact, options)
    return _run_text(artifact, options)


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

    ids = _parse_ids(options.prompt_ids or "")
    has_tokenizer = any(role == "tokenizer.json" for _, role in artifact.resources)
    tokenizer = load_tokenizer(artifact) if has_tokenizer else None
    engine = load_engine(artifact, options.engine, vision=False, quiet=options.json_output)
    session = _make_session(artifact, options, engine, tokenizer)
    return _exit_code(session.ask(Prompt(ids), thinking=False).finish)


def _run_text(artifact: Artifact, options: RunOptions) -> int:
    """Answer a prompt, a file of messages, or line by line."""
    from ninfer_runtime.frontend.frontend import load_frontend
    from ninfer_runtime.models.qwen3_5.model import read_geometry
    from ninfer_tools.run_session.chat import run_chat
    from ninfer_tools.run_session.loading import load_engine

    frontend = load_frontend(artifact, read_geometry(artifact))
    if options.chat:
        wanted = bool(options.images or options.videos)
        vision = wanted or (frontend.media is not None and not options.engine.no_vision)
        engine = load_engine(artifact, options.engine, vision=vision, quiet=False)
        session = _make_session(artifact, options, engine, frontend.tokenizer)
        return run_chat(session, frontend)
    return _run_once(artifact, options, frontend)


def _run_once(artifact: Artifact, options: RunOptions, frontend: Frontend) -> int:
    from ninfer_runtime.frontend.messages import list_media, prepare_messages
    from ninfer_tools.run_session.loading import load_engine
    from ninfer_tools.run_session.session import ask_chat

    tools, folder, spare = None, Path(), {}
    if options.messages is not None:
        messages, tools = read_messages(options.messages)
        folder, spare = options.messages.parent, {"image": options.images, "video": options.videos}
    else:
        messages = [make_message(options.prompt or "", options.images, options.videos)]
    prepare_messages(messages)  # what is wrong with them is said before the model is loaded
    parts = list_media(messages)
    if parts and options.engine.no_vision:
        raise UsageError("images need the vision tower", remedy="leave --no-vision out")
    reader = frontend.media
    media = [] if reader is None else read_media(parts, reader, folder, spare)
    engine = load_engine(artifact, options.engine, vision=bool(parts), quiet=options.json_output)
    session = _make_session(artifact, options, engine, frontend.tokenizer)
    return _exit_code(ask_chat(session, frontend, messages, media, tools).finish)


def _make_session(
    artifact: Artifact, options: RunOptions, engine: Engine, tokenizer: Tokenizer | None
) -> Session:
    from ninfer_runtime.frontend.resources import read_json
    from ninfer_tools.run_session.sampling import choose_sampling
    from ninfer_tools.run_session.session import Session

    preset = read_json(artifact, "generation_config.json") or {}
    return Session(engine, tokenizer, choose_sampling(preset, options.sampling), options)


def _parse_ids(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(item) for item in text.split(",") if item.strip())
    except ValueError:
        raise UsageError("not token ids", got=text, want="--prompt-ids 1,2,3") from None


def _exit_code(finish: str) -> int:
    return _INTERRUPTED if finish == "cancelled" else 0
