"""Largest inputs, layer by layer, against transformers running the whole model at once."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
import torch

from builders.checkpoints import build_checkpoint, compose, tiny_geometry
from builders.stored_forms import FORMS, Stored, bf16_values
from ninfer_formats.errors import NumericError
from ninfer_tools.convert.calibration.forward import measure_inputs
from ninfer_tools.convert.calibration.need import count_run_bytes, estimate_bytes
from ninfer_tools.convert.sources.checkpoint import open_checkpoint
from ninfer_tools.convert.sources.preflight import find_problems

# Two sequences, one shorter than the chunk of the GDN rule and not a multiple of anything.
CHUNKS = [np.random.default_rng(n).integers(0, 256, n).astype(np.int32) for n in (70, 9)]
ROLES = {
    "attention/query": "self_attn.q_proj", "attention/gate": "self_attn.q_proj",
    "attention/key": "self_attn.k_proj", "attention/value": "self_attn.v_proj",
    "attention/output": "self_attn.o_proj", "gdn/query": "linear_attn.in_proj_qkv",
    "gdn/key": "linear_attn.in_proj_qkv", "gdn/value": "linear_attn.in_proj_qkv",
    "gdn/z": "linear_attn.in_proj_z", "gdn/a_projection": "linear_attn.in_proj_a",
    "gdn/b_projection": "linear_attn.in_proj_b", "gdn/output": "linear_attn.out_proj",
    "mlp/gate": "mlp.gate_proj", "mlp/up": "mlp.up_proj", "mlp/down": "mlp.down_proj",
    "moe/router": "mlp.gate", "moe/shared_score": "mlp.shared_expert_gate",
    "moe/shared/gate": "mlp.shared_expert.gate_proj",
    "moe/shared/up": "mlp.shared_expert.up_proj",
    "moe/shared/down": "mlp.shared_expert.down_proj",
}  # fmt: skip
LAYER = "model.language_model.layers."


def measure(folder, chunks=CHUNKS, components=None, advance=lambda count: None):
    found = find_problems({"base": open_checkpoint(folder)}, components)
    assert not found.problems and found.geometry is not None and found.sources is not None
    return measure_inputs(
        found.geometry, found.sources.sources, chunks, "cpu", advance, lambda name: None
    )


class WholeModel:
    """transformers' own model of a folder; `seen` has the largest input by module name."""

    def __init__(self, folder, moe):
        from transformers import Qwen3_5ForConditionalGeneration as Dense
        from transformers import Qwen3_5MoeForConditionalGeneration as Moe

        self.model = (Moe if moe else Dense).from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager"
        )
        self.text = self.model.model.language_model
        self.seen = defaultdict(float)
        self.hidden = []
        self.watch(self.model)
        with torch.no_grad():
            for ids in CHUNKS:
                state = self.model.model(input_ids=torch.tensor(ids)[None].long())
                self.hidden.append(state.last_hidden_state[0])
                self.model.lm_head(state.last_hidden_state)

    def watch(self, module, prefix=""):
        for name, part in module.named_modules():
            kind = type(part).__name__
            if isinstance(part, torch.nn.Linear) or kind.endswith("TopKRouter"):
                part.register_forward_pre_hook(self.note(prefix + name))
            elif kind.endswith("MoeExperts"):
                part.register_forward_pre_hook(self.note_experts(prefix + name))

    def note(self, name):
        def hook(module, inputs):
            self.seen[name] = max(self.seen[name], inputs[0].abs().max().item())

        return hook

    def note_experts(self, name):
        def hook(module, inputs):
            states, chosen, _ = inputs
            for expert in range(module.num_experts):
                rows = states[(chosen == expert).any(-1)]
                if len(rows):
                    gate, up = (rows @ module.gate_up_proj[expert].T).chunk(2, -1)
                    self.note(f"{name}.{expert}.in")(module, (rows,))
                    product = torch.nn.functional.silu(gate) * up
                    self.note(f"{name}.{expert}.product")(module, (product,))

        return hook

    def expected(self, role, prefix):
        if "/experts/" in role:
            _, _, expert, part = role.split("/")
            end = "product" if part == "down" else "in"
            return self.seen.get(f"{prefix}mlp.experts.{expert}.{end}")
        return self.seen[prefix + ROLES[role]]


def normalise(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * (1 + weight)


def run_mtp(whole, tiny):
    """The MTP module of transformers' parts and plain arithmetic; return (stem, final) maxima."""
    weights = {
        name: torch.tensor(bf16_values(t.words) if t.dtype == "BF16" else t.words)
        for name, t in tiny.tensors.items()
        if name.startswith("mtp.")
    }
    config = whole.model.config.text_config
    layer = type(whole.text.layers[1])(config, 1)
    assert config.layer_types[1] == "full_attention"
    inner = "mtp.layers.0."
    state = {n.removeprefix(inner): w for n, w in weights.items() if n.startswith(inner)}
    layer.load_state_dict(state)
    whole.watch(layer, "mtp.")
    stem = final = 0.0
    for ids, hidden in zip(CHUNKS, whole.hidden, strict=True):
        with torch.no_grad():
            following = whole.text.embed_tokens(torch.tensor(ids[1:]).long())
            pair = [
                normalise(following, weights["mtp.pre_fc_norm_embedding.weight"]),
                normalise(hidden[:-1], weights["mtp.pre_fc_norm_hidden.weight"]),
            ]
            joined = torch.cat(pair, -1)
            x = (joined @ weights["mtp.fc.weight"].T)[None]
            length = x.shape[1]
            places = torch.arange(length).view(1, 1, -1).expand(3, 1, -1)
            mask = torch.full((length, length), -torch.inf).triu(1)[None, None]
            rotary = whole.text.rotary_emb(x, places)
            y = layer(x, position_embeddings=rotary, attention_mask=mask)
            stem = max(stem, joined.abs().max().item())
            final = max(final, normalise(y, weights["mtp.norm.weight"]).abs().max().item())
    return stem, final


@pytest.mark.parametrize("moe", [False, True])
def test_every_measure_is_that_of_the_whole_model(tmp_path, moe):
    """V-102 to V-105: text, experts, head and MTP, within float32 rounding of other kernels."""
    tiny = build_checkpoint(moe=moe)
    folder = tiny.write(tmp_path / "m", 2)
    whole = WholeModel(folder, moe)
    stem, final = run_mtp(whole, tiny)
    found = measure(folder)
    compared = 0
    for name, projection in found.items():
        if name == "text/output_head":
            want = {"text/final_hidden": whole.seen["lm_head"], "mtp/final_hidden": final}
        elif name == "mtp/input_projection":
            want = {"mtp/stem_input": stem}
        else:
            component, _, layer, role = name.split("/", 3)
            prefix = "mtp." if component == "mtp" else f"{LAYER}{layer}."
            want = dict.fromkeys(projection.largest, whole.expected(role, prefix))
        assert projection.largest == pytest.approx(want, rel=1e-5), name
        compared += 1
    # Per layer: GDN 7 or attention 5, and 3 of the MLP or 4 experts x 3, 3 shared, 2 routing.
    assert compared == (7 + 5 + 5 + 3 * 17 if moe else 7 + 5 + 5 + 3 * 3) + 2


def test_expert_without_tokens_has_no_measure(tmp_path):
    """V-104: one token goes to two of four experts."""
    folder = build_checkpoint(moe=True).write(tmp_path / "m")
    found = measure(folder, [CHUNKS[0][:1]], ("text",))
    for layer in (0, 1):
        names = [f"text/layers/{layer}/moe/experts/{e}" for e in range(4)]
        measured = [[*found[f"{n}/{r}"].largest.values()] for n in names for r in ("gate", "down")]
        assert sum(value == [None] for value in measured) == 4
    assert not any(None in p.largest.values() for n, p in found.items() if "/experts/" not in n)


def test_sequence_of_one_token_drafts_nothing(tmp_path):
    """V-105: there is no token at t + 1."""
    found = measure(build_checkpoint().write(tmp_path / "m"), [CHUNKS[0][:1]])
    assert found["text/output_head"].largest["mtp/final_hidden"] is None
    assert found["mtp/layers/0/mlp/up"].largest == {"mtp/layers/0/ffn_input": None}
    assert found["text/output_head"].largest["text/final_hidden"]


def test_last_sequence_of_one_token_changes_nothing_for_mtp(tmp_path):
    """V-105."""
    folder = build_checkpoint().write(tmp_path / "m")
    one, two = (measure(folder, chunks) for chunks in (CHUNKS[:1], [CHUNKS[0], CHUNKS[1][:1]]))
    drafted = [name for name in one if name.startswith("mtp/")]
    assert drafted and all(one[name] == two[name] for name in drafted)


@pytest.mark.parametrize("form", FORMS)
def test_stored_forms_give_the_measures_of_their_values(tmp_path, form):
    """V-102: the same numbers as a checkpoint that stores the decoded values as float32."""
    moe = form in ("ct_nvfp4", "hf_block")
    tiny = build_checkpoint(form=form, moe=moe, vision=False)
    plain = build_checkpoint(moe=moe, vision=False)
    plain.tensors = {
        name: Stored("F32", np.ascontiguousarray(values, "<f4"))
        for name, values in compose(tiny.geometry, tiny.values.__getitem__).items()
    }
    found = measure(tiny.write(tmp_path / "m"))
    want = measure(plain.write(tmp_path / "p"))
    assert found.keys() == want.keys()
    for name, projection in found.items():
        assert projection.largest == pytest.approx(want[name].largest, rel=1e-5), name
    assert any(t.dtype == "F8_E4M3" for t in tiny.tensors.values())


def test_split_and_stacked_experts_and_tied_heads_are_the_same(tmp_path):
    """V-102."""
    one, two = (build_checkpoint(moe=True, split_experts=split) for split in (False, True))
    assert len(two.tensors) > len(one.tensors)
    for name, tensor in two.tensors.items():
        if ".mlp.experts." not in name:
            two.tensors[name] = one.tensors[name]
            continue
        head, expert, part = name.removesuffix(".weight").rsplit(".", 2)
        stacked = one.tensors[f"{head}.{'down' if part == 'down_proj' else 'gate_up'}_proj"]
        words = stacked.words[int(expert)]
        half = {"gate_proj": words[:32], "up_proj": words[32:], "down_proj": words}[part]
        two.tensors[name] = tensor._replace(words=half)
    assert measure(one.write(tmp_path / "1")) == measure(two.write(tmp_path / "2"))


def test_text_without_mtp_or_with_full_attention_only_runs(tmp_path):
    """V-102: what is not there is not measured."""
    found = measure(build_checkpoint(mtp=False, vision=False).write(tmp_path / "m"))
    assert [*found["text/output_head"].largest] == ["text/final_hidden"]
    assert not [name for name in found if name.startswith("mtp/")]


def test_weight_that_is_nan_is_named(tmp_path):
    """V-106."""
    tiny = build_checkpoint()
    name = f"{LAYER}1.mlp.up_proj.weight"
    words = np.array(tiny.tensors[name].words)
    words[7, 3] = 0x7FC0
    tiny.tensors[name] = Stored("BF16", words)
    with pytest.raises(NumericError) as caught:
        measure(tiny.write(tmp_path / "m"))
    assert name in str(caught.value) and "row 7" in str(caught.value)


def test_input_out_of_float32_is_named(tmp_path):
    """V-106: finite weights of 1e38 overflow in the products after them."""
    tiny = build_checkpoint()
    name = f"{LAYER}0.mlp.up_proj.weight"
    tiny.tensors[name] = Stored("F32", np.full((192, 128), 1e38, "<f4"))
    with pytest.raises(NumericError, match="text/layers/0/mlp/down @ text/layers/0/mlp/product"):
        measure(tiny.write(tmp_path / "m"))


def test_progress_counts_every_layer_once(tmp_path):
    """The bytes of three layers, for either number of sequences."""
    tiny = build_checkpoint()
    folder = tiny.write(tmp_path / "m")
    for chunks in (CHUNKS[:1], CHUNKS):
        counts = []
        measure(folder, chunks, advance=counts.append)
        assert sum(counts) == count_run_bytes(tiny.geometry)
        assert len(counts) == 3 * len(chunks)


def test_layers_are_counted_as_float32():
    """V-107: a GDN layer of the tiny model, by hand."""
    hidden, key, value, heads, width = 128, 64, 192, 6, 192
    gdn = (
        (2 * key + 2 * value + 2 * heads + value) * hidden + 4 * (2 * key + value) + 2 * heads + 32
    )
    attention = (2 * 128 + 2 * 64 + 128) * hidden + 2 * 64
    both = 2 * hidden + 3 * width * hidden
    geometry = tiny_geometry(mtp=False)
    assert count_run_bytes(geometry) == 4 * (gdn + attention + 2 * both)


def test_need_grows_by_one_state_per_token_and_holds_the_largest_layer():
    """V-107."""
    geometry = tiny_geometry()
    assert estimate_bytes(geometry, 1001) - estimate_bytes(geometry, 1) == 1000 * 4 * 128
    largest = max(count_run_bytes(tiny_geometry(mtp=False)) // 2, 1)
    assert estimate_bytes(geometry, 1) > largest
    # One layer of the 27B model: q|gate, k, v, o, MLP and norms, as float32.
    from ninfer_formats.inventories.family import family_geometry

    model = family_geometry("qwen3.8-27b")
    attention = 5120 * (2 * 6144 + 2 * 1024 + 6144)
    layer = 4 * (attention + 3 * 5120 * 17408 + 2 * 5120 + 2 * 256)
    need = estimate_bytes(model, 16384)
    assert layer + 4 * 5120 * 16384 < need < 1.6 * (layer + 4 * 5120 * 16384)
