"""Frontend files: S-30 to S-32 and S-36."""

from __future__ import annotations

import json

import pytest

from builders.checkpoints import build_checkpoint

ROLES = [
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "generation_config.json",
    "preprocessor_config.json",
    "video_preprocessor_config.json",
]


def edit(tiny, role, **fields):
    tiny.resources[role] = json.dumps({**json.loads(tiny.resources[role]), **fields}).encode()


def test_six_files_come_byte_for_byte_in_artifact_order(save):
    """S-30."""
    tiny = build_checkpoint()
    assert save(tiny).resources == tiny.resources
    assert list(save(tiny).resources) == ROLES


@pytest.mark.parametrize(
    ("origin", "field"),
    [
        ("tokenizer_config.json", "{{ hé }}"),
        ("tokenizer_config.json", [{"name": "tool", "template": "no"},
                                   {"name": "default", "template": "{{ hé }}"}]),
        ("chat_template.json", "{{ hé }}"),
    ],
)  # fmt: skip
def test_template_inside_another_file_is_taken(save, origin, field):
    """S-31."""
    tiny = build_checkpoint()
    del tiny.resources["chat_template.jinja"]
    tiny.resources.setdefault(origin, b"{}")
    edit(tiny, origin, chat_template=field)
    found = save(tiny)
    assert found.resources["chat_template.jinja"] == "{{ hé }}".encode()
    assert f"inside {origin}" in found.notices[0]


def test_template_file_wins_over_the_one_in_the_config(save):
    """S-31."""
    tiny = build_checkpoint()
    edit(tiny, "tokenizer_config.json", chat_template="other")
    assert save(tiny).resources["chat_template.jinja"] == tiny.resources["chat_template.jinja"]


@pytest.mark.parametrize("role", ROLES)
def test_missing_file_is_refused_with_the_option_that_helps(check, role):
    """S-32."""
    tiny = build_checkpoint()
    raw = tiny.resources.pop(role)
    (problem,) = check(tiny).problems
    assert str(problem.path).endswith(role) and f"--resource {role}=" in str(problem.remedy)
    assert not check(tiny, resources={role: raw}).problems


def test_preprocessing_belongs_to_vision_alone(check):
    """S-32."""
    tiny = build_checkpoint(vision=False)
    for role in ROLES[4:]:
        del tiny.resources[role]
    assert not check(tiny).problems


@pytest.mark.parametrize("raw", [b"", b" \n", b"\xff", b"a\0b", b"\xef\xbb\xbfa"])
def test_template_is_text(check, raw):
    """S-32, S-76."""
    tiny = build_checkpoint()
    tiny.resources["chat_template.jinja"] = raw
    (problem,) = check(tiny).problems
    assert str(problem.path).endswith("chat_template.jinja")


@pytest.mark.parametrize("role", [role for role in ROLES if role.endswith(".json")])
def test_json_files_hold_an_object(check, role):
    """S-32."""
    tiny = build_checkpoint()
    tiny.resources[role] = b"[1]"
    assert [str(p.path).endswith(role) for p in check(tiny).problems] == [True]


@pytest.mark.parametrize("key", ["patch_size", "temporal_patch_size", "merge_size"])
def test_preprocessing_fits_the_vision_tower(check, key):
    """S-36."""
    tiny = build_checkpoint()
    edit(tiny, "video_preprocessor_config.json", **{key: 14})
    (problem,) = check(tiny).problems
    assert (problem.where, problem.got) == (key, 14)
