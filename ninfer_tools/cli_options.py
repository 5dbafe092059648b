"""Options of the command line that need more than a line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

File = Annotated[
    Path | None, typer.Argument(help="Entry file of the artifact.", show_default=False)
]
Synthetic = Annotated[
    str | None,
    typer.Option(
        help="Instead of FILE: a made-up artifact, e.g. qwen3.8-27b:nvfp4:layers=4.",
        metavar="SPEC",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Cap = Annotated[
    int, typer.Option("--max-directory-mib", help="Refuse larger directories.", min=1, max=65536)
]
Spec = Annotated[str | None, typer.Option(help="Draft tokens ahead: mtp.")]
DraftTokens = Annotated[
    int | None,
    typer.Option(help="Drafts of a round, 3 by default.", min=1, max=15, show_default=False),
]
LmHeadDraft = Annotated[
    bool, typer.Option("--lm-head-draft", help="Draft with the shortlist head.")
]
KvDtype = Annotated[str, typer.Option(help="auto, bf16, fp8, int8 or fp32.")]
MaxContext = Annotated[
    int | None,
    typer.Option(help="Tokens of prompt and answer, 8192 by default.", min=1, show_default=False),
]
RankingCorpus = Annotated[
    list[str] | None,
    typer.Option(
        help="Count tokens in these texts instead: plain or .jsonl, also .zst and .gz.",
        metavar="FILES",
    ),
]
SaveRanking = Annotated[
    Path | None, typer.Option(help="Keep what --ranking-corpus counted.", metavar="FILE.i64")
]
Plot = Annotated[
    Path | None,
    typer.Option(help="Draw errors by layer and role (.png, .svg, .pdf).", metavar="FILE"),
]
ForcePlot = Annotated[bool, typer.Option("--force", help="Let --plot replace a file.")]
Calibrate = Annotated[
    Path | None,
    typer.Option(
        help="Run this text to get activation divisors; kept as FILE.calibration.json.",
        metavar="TEXTFILE",
    ),
]
SavedCalibration = Annotated[
    Path | None, typer.Option(help="Take activation divisors from a calibration.", metavar="FILE")
]
CalibrationTokens = Annotated[
    int | None, typer.Option(help="Tokens of --calibrate to run, 16384 by default.", min=1)
]
ServedConfig = Annotated[
    Path | None,
    typer.Option(
        help="Options by their long names; those given here count more.", metavar="FILE.toml"
    ),
]
Recipe = Annotated[
    str | None, typer.Option(help="Python code that chooses formats.", metavar="FILE.py[:FUNC]")
]


def _number(help: str, least: float | None = None) -> typer.models.OptionInfo:
    return typer.Option(help=help, min=least, show_default=False)


def add_run(app: typer.Typer, dispatch: Callable[..., None]) -> None:
    """Add `ninfer run` to the command line."""

    @app.command("run")
    def run_command(
        file: File = None,
        synthetic: Synthetic = None,
        prompt: Annotated[
            str | None, typer.Option(help="Answer this message.", metavar="TEXT")
        ] = None,
        messages: Annotated[
            Path | None,
            typer.Option(
                help="Answer a conversation: a list of messages, or a request with messages, "
                "tools and parameters, which count more than these options.",
                metavar="FILE.json",
            ),
        ] = None,
        chat: Annotated[
            bool, typer.Option("--chat", help="Answer line by line; /help lists its commands.")
        ] = False,
        prompt_ids: Annotated[
            str | None, typer.Option(help="Continue these token ids.", metavar="ID,ID,...")
        ] = None,
        image: Annotated[
            list[Path] | None, typer.Option(help="An image for the message.", metavar="FILE")
        ] = None,
        video: Annotated[
            list[Path] | None,
            typer.Option(
                help="A video for the message, or a folder of its frames, two a second.",
                metavar="FILE",
            ),
        ] = None,
        max_new: Annotated[int | None, _number("Most tokens of an answer.", 1)] = None,
        stop: Annotated[
            list[str] | None,
            typer.Option(help="End the answer before this text; up to 4.", metavar="TEXT"),
        ] = None,
        thinking: Annotated[
            bool | None,
            typer.Option("--thinking/--no-thinking", help="Think first; the model decides."),
        ] = None,
        reasoning_effort: Annotated[
            str | None, typer.Option(help="low, medium or xhigh, where the model knows it.")
        ] = None,
        greedy: Annotated[
            bool, typer.Option("--greedy", help="Take the most likely token.")
        ] = False,
        temperature: Annotated[float | None, _number("Instead of the model's own.")] = None,
        top_k: Annotated[int | None, _number("Draw from so many tokens; 0: all.")] = None,
        top_p: Annotated[float | None, _number("Draw from this much probability.")] = None,
        min_p: Annotated[float | None, _number("Least share of the likeliest token's.")] = None,
        presence_penalty: Annotated[float | None, _number("Off tokens that were used.")] = None,
        frequency_penalty: Annotated[float | None, _number("Off tokens, for each use.")] = None,
        repetition_penalty: Annotated[float | None, _number("Divides used tokens.")] = None,
        logit_bias: Annotated[
            list[str] | None,
            typer.Option(help="Add to the logit of a token; -inf forbids it.", metavar="ID=VALUE"),
        ] = None,
        seed: Annotated[int | None, _number("Same seed, same answer.")] = None,
        top_logprobs: Annotated[
            int | None,
            typer.Option(
                help="With --json: log probabilities, and of so many other tokens.", min=0, max=64
            ),
        ] = None,
        spec: Spec = None,
        draft_tokens: DraftTokens = None,
        lm_head_draft: LmHeadDraft = False,
        device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
        dtype: Annotated[str, typer.Option(help="auto, bf16 or fp32.")] = "auto",
        max_context: MaxContext = None,
        kv_dtype: KvDtype = "auto",
        vision: Annotated[
            bool | None,
            typer.Option("--vision/--no-vision", help="Load the vision tower; as needed without."),
        ] = None,
        no_cuda_graph: Annotated[
            bool, typer.Option("--no-cuda-graph", help="Launch every kernel by itself.")
        ] = False,
        requantize: Annotated[
            str | None,
            typer.Option(
                help="Re-quantise bf16 matrices at load, e.g. head=w8,mtp=nvfp4.",
                metavar="GROUP=FORMAT,...",
            ),
        ] = None,
        max_directory_mib: Cap = 256,
        json_output: Json = False,
    ) -> None:
        """Answer a prompt; the answer goes to standard output as it comes."""
        from ninfer_tools.run_session.options import EngineFlags, RunOptions, SamplingFlags

        sampling = SamplingFlags(
            greedy,
            temperature,
            top_k,
            top_p,
            min_p,
            presence_penalty,
            frequency_penalty,
            repetition_penalty,
            seed,
            tuple(logit_bias or ()),
        )
        engine = EngineFlags(
            device,
            dtype,
            max_context,
            kv_dtype,
            spec,
            draft_tokens,
            lm_head_draft,
            vision,
            no_cuda_graph,
            requantize or "",
        )
        options = RunOptions(
            prompt,
            prompt_ids,
            messages,
            chat,
            tuple(image or ()),
            tuple(video or ()),
            max_new,
            tuple(stop or ()),
            top_logprobs,
            thinking,
            reasoning_effort,
            json_output,
            sampling,
            engine,
        )
        dispatch(
            "run",
            json_output,
            file=file,
            synthetic=synthetic,
            options=options,
            max_directory_bytes=max_directory_mib << 20,
        )


def add_doctor(app: typer.Typer, dispatch: Callable[..., None]) -> None:
    """Add `ninfer doctor` to the command line."""

    @app.command("doctor")
    def doctor_command(
        file: File = None,
        max_context: MaxContext = None,
        max_concurrency: Annotated[
            int, typer.Option(help="Answers at the same time.", min=1, max=8)
        ] = 1,
        kv_dtype: KvDtype = "auto",
        spec: Spec = None,
        draft_tokens: DraftTokens = None,
        lm_head_draft: LmHeadDraft = False,
        vision: Annotated[
            bool | None,
            typer.Option("--vision/--no-vision", help="With the vision tower; if there is one."),
        ] = None,
        max_directory_mib: Cap = 256,
        json_output: Json = False,
    ) -> None:
        """Say whether this machine can run an engine, and FILE on it, and what to do if not."""
        from ninfer_tools.doctor.artifact_fit import Plan

        dispatch(
            "doctor.command",
            json_output,
            file=file,
            plan=Plan(
                max_context, max_concurrency, kv_dtype, spec, draft_tokens, lm_head_draft, vision
            ),
            max_directory_bytes=max_directory_mib << 20,
        )


def add_serve(app: typer.Typer, dispatch: Callable[..., None]) -> None:
    """Add `ninfer serve` and `ninfer plan` to the command line."""
    from ninfer_tools.serve_session.option_parameters import take_options

    def serve_command(
        file: File = None,
        synthetic: Synthetic = None,
        served_config: ServedConfig = None,
        json_output: Json = False,
        **values: Any,
    ) -> None:
        """Answer requests over HTTP: the APIs of OpenAI and Anthropic, on one artifact."""
        dispatch(
            "serve",
            json_output,
            file=file,
            synthetic=synthetic,
            config=served_config,
            given=values,
        )

    def plan_command(
        file: File = None,
        synthetic: Synthetic = None,
        memory: Annotated[
            str | None,
            typer.Option(
                help="Memory to plan for, such as 24GiB; with it, of a GPU.", metavar="SIZE"
            ),
        ] = None,
        served_config: ServedConfig = None,
        json_output: Json = False,
        **values: Any,
    ) -> None:
        """Say what `ninfer serve` with the same options takes of memory; needs no GPU."""
        dispatch(
            "plan",
            json_output,
            file=file,
            synthetic=synthetic,
            config=served_config,
            given=values,
            memory=memory,
        )

    app.command("serve")(take_options(serve_command))
    app.command("plan")(take_options(plan_command))
