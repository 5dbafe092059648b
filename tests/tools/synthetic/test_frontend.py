"""The synthetic tokenizer and template behave like the family's."""

from __future__ import annotations

import json
import unicodedata

import jinja2
import pytest
import tokenizers
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ninfer_formats.errors import UsageError
from ninfer_tools.synthetic.byte_pairs import build_merges, byte_alphabet
from ninfer_tools.synthetic.frontend import build_frontend, read_chat_template
from ninfer_tools.synthetic.vocabulary import ADDED_TOKENS, Vocabulary

TEXTS = (
    "",
    "The people would return the first value, would they not?",
    "def main(x):\n    return x == 1\r\n\n\n",
    "Straße, naïve cafe\u0301, Ångström",
    "中文字符 日本語 한국어 русский العربية हिन्दी ไทย",
    "🙂🏳️‍🌈 1234567890 ½ ﬀ \u00a0\u3000\t x",
    "\x00\x01\x7f\u0080\ufffd\U0010ffff",
    "<think>\nno\n</think>\n\n<tool_call>x</tool_call><|im_end|>",
)
SMALL = 4000


@pytest.fixture(scope="module")
def frontend() -> dict[str, bytes]:
    return build_frontend()


@pytest.fixture(scope="module", params=(248077, SMALL, 289))
def loaded(request, frontend) -> tuple[int, tokenizers.Tokenizer]:
    full = request.param == 248077
    files = frontend if full else build_frontend(request.param)
    return request.param, tokenizers.Tokenizer.from_str(files["tokenizer.json"].decode())


def test_ids_are_contiguous_and_as_many_as_asked(loaded):
    size, tokenizer = loaded
    assert sorted(tokenizer.get_vocab().values()) == list(range(size))


@pytest.mark.parametrize("text", TEXTS)
def test_every_text_comes_back_in_normal_form_c(loaded, text):
    _, tokenizer = loaded
    ids = tokenizer.encode(text).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == unicodedata.normalize("NFC", text)


def test_every_id_decodes(loaded):
    size, tokenizer = loaded
    pieces = tokenizer.decode_batch([[i] for i in range(size)], skip_special_tokens=False)
    assert all(pieces)


def test_common_text_needs_few_tokens(loaded):
    size, tokenizer = loaded
    text = "The people would return the first value, because some other number was more."
    assert len(tokenizer.encode(text).ids) < (len(text) if size < SMALL else 0.55 * len(text)) + 1


def test_marks_stay_with_their_letters_and_digits_stand_alone(loaded):
    _, tokenizer = loaded
    split = tokenizer.pre_tokenizer.pre_tokenize_str("कि 42")
    assert [span for _, span in split] == [(0, 2), (2, 3), (3, 4), (4, 5)]


def test_added_tokens_of_the_family_have_their_ids():
    # From the published models; the last is the highest id there is.
    expected = {
        "<|endoftext|>": 248044,
        "<|im_start|>": 248045,
        "<|im_end|>": 248046,
        "<|vision_start|>": 248053,
        "<|vision_end|>": 248054,
        "<|image_pad|>": 248056,
        "<|video_pad|>": 248057,
        "<tool_call>": 248058,
        "<|fim_pad|>": 248063,
        "<tool_response>": 248066,
        "<think>": 248068,
        "</think>": 248069,
        "<|audio_start|>": 248070,
        "<|audio_pad|>": 248076,
    }
    assert {name: Vocabulary().added_id(name) for name in expected} == expected


def test_both_tokenizer_files_agree_on_added_tokens(frontend):
    tokenizer = json.loads(frontend["tokenizer.json"])
    config = json.loads(frontend["tokenizer_config.json"])
    described = {str(t.pop("id")): t for t in tokenizer["added_tokens"]}
    assert described == config["added_tokens_decoder"]
    assert list(described) == [str(i) for i in range(248044, 248077)]


def test_thinking_and_tool_tokens_are_not_special():
    ordinary = [name for name, special in ADDED_TOKENS if not special]
    assert ordinary == [
        "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>",
        "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>",
        "<think>", "</think>",
    ]  # fmt: skip


def test_merges_are_unique_and_build_on_known_tokens():
    merges = build_merges(20000, seed=3)
    known = set(byte_alphabet())
    for left, right in merges.merges:
        assert left in known and right in known and left + right not in known
        known.add(left + right)
    assert list(merges.tokens.values()) == list(range(20000)) and known == set(merges.tokens)


def test_seed_decides_the_tokenizer():
    first, second = (build_frontend(SMALL, seed)["tokenizer.json"] for seed in (1, 2))
    assert first != second and first == build_frontend(SMALL, 1)["tokenizer.json"]


def test_impossible_vocabulary_sizes_are_refused():
    with pytest.raises(UsageError, match="too small"):
        build_frontend(288)
    with pytest.raises(UsageError, match="too many tokens"):
        build_frontend(2**24)


def test_stop_ids_and_sampling_are_those_of_the_family(frontend):
    generation = json.loads(frontend["generation_config.json"])
    assert generation["eos_token_id"] == [248046, 248044]
    assert (generation["temperature"], generation["top_k"], generation["top_p"]) == (1.0, 20, 0.95)


def test_preprocessing_states_the_vision_geometry(frontend):
    for role in ("preprocessor_config.json", "video_preprocessor_config.json"):
        config = json.loads(frontend[role])
        sizes = [config[k] for k in ("patch_size", "temporal_patch_size", "merge_size")]
        assert sizes == [16, 2, 2]


def test_roles_come_in_file_order(frontend):
    assert list(frontend) == [
        "tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
        "generation_config.json", "preprocessor_config.json", "video_preprocessor_config.json",
    ]  # fmt: skip


def render(messages: list[dict], **options: object) -> str:
    def refuse(message: str) -> None:
        raise ValueError(message)

    def to_json(value: object) -> str:
        return json.dumps(value, ensure_ascii=False)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, undefined=jinja2.ChainableUndefined
    )
    environment.globals["raise_exception"] = refuse
    environment.filters["tojson"] = to_json
    template = environment.from_string(read_chat_template().decode())
    return template.render(messages=messages, **options)


USER = {"role": "user", "content": " Hi "}
CALL = {"function": {"name": "add", "arguments": {"a": 1, "b": "x<y", "c": ["é"]}}}


def test_prompt_opens_a_thinking_turn():
    system = {"role": "system", "content": " Be kind. "}
    assert render([system, USER], add_generation_prompt=True) == (
        "<|im_start|>system\nBe kind.<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\n<think>\n"
    )  # fmt: skip


def test_thinking_can_be_switched_off():
    prompt = render([USER], add_generation_prompt=True, enable_thinking=False)
    assert prompt.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")


def test_old_reasoning_is_dropped_unless_preserved():
    turns = [USER, {"role": "assistant", "content": "Yes", "reasoning_content": " why "}, USER]
    assert "<|im_start|>assistant\nYes<|im_end|>" in render(turns)
    kept = render(turns, preserve_thinking=True)
    assert "<|im_start|>assistant\n<think>\nwhy\n</think>\n\nYes<|im_end|>" in kept


def test_reasoning_is_split_from_content_when_it_has_no_field():
    turns = [USER, {"role": "assistant", "content": "<think>\nwhy\n</think>\n\nYes"}]
    expected = "<|im_start|>assistant\n<think>\nwhy\n</think>\n\nYes<|im_end|>\n"
    assert render(turns).endswith(expected)


def test_tools_calls_and_results_have_the_wire_format():
    tools = [{"type": "function", "function": {"name": "add"}}]
    turns = [
        {"role": "system", "content": "Sum."},
        USER,
        {"role": "assistant", "content": "", "tool_calls": [CALL, CALL]},
        {"role": "tool", "content": "3"},
        {"role": "tool", "content": "4"},
    ]
    text = render(turns, tools=tools)
    call = (
        "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\nx<y\n"
        '</parameter>\n<parameter=c>\n["é"]\n</parameter>\n</function>\n</tool_call>'
    )
    assert text.startswith("<|im_start|>system\n# Tools\n")
    assert f"<tools>\n{json.dumps(tools[0])}\n</tools>" in text
    assert "\n\nSum.<|im_end|>\n" in text
    assert f"<think>\n\n</think>\n\n{call}\n{call}<|im_end|>\n" in text
    assert text.endswith(
        "<|im_start|>user\n<tool_response>\n3\n</tool_response>\n"
        "<tool_response>\n4\n</tool_response><|im_end|>\n"
    )


def test_a_wrapped_tool_result_is_no_new_question():
    turns = [
        USER,
        {"role": "assistant", "content": "", "reasoning_content": "r", "tool_calls": [CALL]},
        {"role": "user", "content": "<tool_response>\n3\n</tool_response>"},
    ]
    assert "<think>\nr\n</think>" in render(turns)


def test_media_become_placeholders_with_counted_names():
    content = [{"type": "image"}, {"type": "video"}, {"type": "image_url"}, {"text": "?"}]
    image = "<|vision_start|><|image_pad|><|vision_end|>"
    video = "<|vision_start|><|video_pad|><|vision_end|>"
    turn = [{"role": "user", "content": content}]
    assert f"user\n{image}{video}{image}?<|im_end|>" in render(turn)
    named = f"user\nPicture 1: {image}Video 1: {video}Picture 2: {image}?<|im_end|>"
    assert named in render(turn, add_vision_id=True)


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([], "no messages"),
        ([{"role": "system", "content": "x"}], "no user message"),
        ([USER, {"role": "system", "content": "x"}], "must come first"),
        ([{"role": "system", "content": [{"type": "image"}]}, USER], "cannot hold images"),
        ([USER, {"role": "critic", "content": "x"}], "Unknown role"),
        ([{"role": "user", "content": 3}], "neither text"),
        (
            [USER, {"role": "assistant", "content": "",
                    "tool_calls": [{"name": "f", "arguments": '{"a":1}'}]}],
            "must be a mapping",
        ),
    ],
)  # fmt: skip
def test_template_refuses_what_it_cannot_render(messages, text):
    with pytest.raises(ValueError, match=text):
        render(messages)
