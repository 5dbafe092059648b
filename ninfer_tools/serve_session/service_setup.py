"""Options as the parts of the server take them."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ninfer_formats.errors import NinferError
from ninfer_formats.reader import Artifact
from ninfer_tools.artifact_source import open_source
from ninfer_tools.run_session.options import parse_bias
from ninfer_tools.serve_session.gathering import Called
from ninfer_tools.serve_session.options import ServeOptions
from ninfer_tools.serve_session.value_checks import SAMPLING

if TYPE_CHECKING:
    from ninfer_runtime.config import EngineConfig
    from ninfer_runtime.server.engine_process.entry import EngineSetup
    from ninfer_runtime.server.http_options import HttpOptions
    from ninfer_runtime.server.service_options import ServiceOptions

_MIB = 1 << 20


def open_called(called: Called) -> Artifact:
    """Open the artifact that was asked for."""
    return open_source(called.file, called.synthetic, called.options.max_directory_mib * _MIB)


def make_setup(called: Called, config: EngineConfig) -> EngineSetup:
    """Return how the engine process gets its engine."""
    from ninfer_runtime.server.engine_process.entry import EngineSetup

    return EngineSetup(functools.partial(open_called, called), config)


def make_service_options(options: ServeOptions) -> ServiceOptions:
    """Return what holds where requests do not say. StartupError for a broken chat template."""
    from ninfer_runtime.server.requests import SamplingFields, ThinkingFields
    from ninfer_runtime.server.service_options import ServiceOptions
    from ninfer_runtime.server.thinking import NONE

    effort, enabled = options.reasoning_effort, options.thinking
    if effort is not None and enabled is None:
        enabled = effort != NONE
    values: dict[str, Any] = {field: getattr(options, name) for name, field in SAMPLING.items()}
    return ServiceOptions(
        model_id=options.model_id,
        default_max_tokens=options.default_max_tokens,
        thinking=ThinkingFields(
            enabled, None if effort == NONE else effort, options.thinking_budget
        ),
        template={"preserve_thinking": True} if options.preserve_thinking else {},
        template_source=_read_template(options.chat_template),
        answer_reserve=options.answer_reserve,
        sampling=SamplingFields(**values, bias=parse_bias(options.logit_bias)),
        greedy=options.greedy,
        max_pending=options.max_pending_requests,
        pending_seconds=options.pending_timeout_ms / 1000,
        media_bytes=options.media_cache_mib * _MIB,
    )


def choose_sampling(artifact: Artifact, service: ServiceOptions) -> dict[str, float]:
    """Return how answers are drawn that do not say, by option. ArtifactError for a preset of the
    model that cannot be used."""
    from ninfer_runtime.frontend.resources import read_json
    from ninfer_runtime.server.requests import SamplingFields
    from ninfer_runtime.server.sampling_defaults import SamplingDefaults

    preset = read_json(artifact, "generation_config.json") or {}
    chosen = SamplingDefaults(preset, service.sampling, service.greedy).choose(SamplingFields())
    return {name: getattr(chosen, field) for name, field in SAMPLING.items() if field != "seed"}


def make_http_options(options: ServeOptions, keys: tuple[str, ...]) -> HttpOptions:
    from ninfer_runtime.server.http_options import HttpOptions

    return HttpOptions(
        keys=keys,
        cors=options.cors,
        request_bytes=options.max_request_mib * _MIB,
        media_urls=options.allow_media_urls,
        request_log=options.request_log_jsonl,
        log_bytes=options.request_log_max_mib * _MIB,
        log_keep=options.request_log_keep,
    )


def check_request_log(options: ServeOptions, artifact: Artifact) -> None:
    """Raise NinferError for a request log that cannot be written or is the artifact itself."""
    path = options.request_log_jsonl
    if path is None:
        return
    for file in artifact.files:
        own = Path(artifact.path)
        if _same(path, own if file.path is None else own.parent / file.path):
            raise NinferError(
                "--request-log-jsonl is a file of the artifact", path=path,
                remedy="name another file",
            )  # fmt: skip
    try:
        path.open("ab").close()
    except OSError as error:
        raise NinferError(f"request log cannot be opened: {error.strerror}", path=path) from None


def _same(path: Path, other: Path) -> bool:
    try:
        return path.samefile(other)
    except OSError:
        return False


def _read_template(path: Path | None) -> str | None:
    from ninfer_runtime.errors import StartupError
    from ninfer_runtime.frontend.template import ChatTemplate

    if path is None:
        return None
    try:
        source = path.read_text("utf-8")
        ChatTemplate(source)
    except OSError as error:
        raise NinferError(f"cannot open: {error.strerror}", path=path) from None
    except UnicodeDecodeError:
        raise NinferError("chat template is not UTF-8", path=path) from None
    except StartupError as error:
        raise NinferError(error.what, path=path, where=error.where) from None
    return source
