"""Drafts of version 3 directories for tests of planning and writing."""

from __future__ import annotations

from builders.artifact_bytes import small_root
from ninfer_formats.directory import Binding, Component, Part, Use
from ninfer_formats.write_plan import DirectoryDraft, make_resource, make_tensor, place_objects


def small_draft(name="demo"):
    objects = place_objects(
        [
            make_resource("resource/text/chat_template.jinja", 300),
            make_tensor("weight/000000", [384, 128], "q4_g64_fp16"),
            make_tensor("auxiliary/000000", [], "fp32"),
        ]
    )
    query, key = "text/layers/3/attention/query", "text/layers/3/attention/key"
    root = small_root()
    return DirectoryDraft(
        components=(
            Component(
                "text",
                root["components"]["text"]["config"],
                resources={"chat_template.jinja": "resource/text/chat_template.jinja"},
            ),
        ),
        objects=objects,
        bindings={
            query: Binding((Part("weight/000000", 0, 32768),), whole=False),
            key: Binding((Part("weight/000000", 32768, 49152),), whole=False),
        },
        uses=(Use(query, "text/layers/3/mixer_input", "A16Only"),),
        metadata={"name": name},
        provenance=root["provenance"],
    )
