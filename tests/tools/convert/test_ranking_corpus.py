"""`--ranking-corpus`: token counts from texts, and the shortlist they give."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import random
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import zstandard

from builders.checkpoints import TOKENS, VOCAB_ROWS, build_checkpoint
from builders.conversions import convert, converted, read_report
from ninfer_formats.errors import NinferError, UsageError
from ninfer_tools.convert import corpus_text
from ninfer_tools.convert.corpus_text import MAX_PIECE_BYTES, PIECE_BYTES, CorpusFile
from ninfer_tools.convert.proposal import choose_tokens
from ninfer_tools.convert.ranking_corpus import count_tokens, parse_corpora

TEXT = "the cat and the dog\nsaid nothing: äöü 漢字 🙂\n\n"


@pytest.fixture(scope="module")
def tokenizer():
    return build_checkpoint().resources["tokenizer.json"]


def pieces(path):
    return list(CorpusFile(path).pieces(lambda count: None))


def count(paths, tokenizer):
    return count_tokens(paths, tokenizer, VOCAB_ROWS).counts


def pack(folder):
    """Return the same text in every form that is read, by name."""
    lines = "".join(json.dumps(item) + "\n" for item in ({"text": TEXT, "id": 7}, TEXT))
    forms = {"a.txt": TEXT.encode(), "a.jsonl": lines.encode()}
    for name, data in list(forms.items()):
        forms[f"{name}.gz"] = gzip.compress(data)
        # Two frames: files of this kind are put together from many.
        forms[f"{name}.zst"] = zstandard.compress(data[:9]) + zstandard.compress(data[9:])
    for name, data in forms.items():
        (folder / name).write_bytes(data)
    return {name: folder / name for name in forms}


def test_every_form_of_a_text_gives_the_counts_of_the_tokenizer(tmp_path, tokenizer):
    """V-121 and V-123: plain, JSON lines of either kind, gzip and Zstandard."""
    from tokenizers import Tokenizer

    ids = Tokenizer.from_buffer(tokenizer).encode(TEXT, add_special_tokens=False).ids
    want = np.bincount(ids, minlength=VOCAB_ROWS)
    for name, path in pack(tmp_path).items():
        times = 2 if "jsonl" in name else 1
        assert np.array_equal(count([path], tokenizer), times * want), name


def test_counts_of_files_add_up_in_any_order(tmp_path, tokenizer):
    """V-123."""
    paths = list(pack(tmp_path).values())
    want = sum(count([path], tokenizer) for path in paths)
    assert np.array_equal(count(paths, tokenizer), want)
    assert np.array_equal(count(paths[::-1], tokenizer), want)


def test_pieces_end_at_the_first_line_end_past_64_kib(tmp_path):
    """V-122: and hold the whole text, whatever the size of the reads."""
    line = "x" * 999 + "\n"
    text = line * 200
    (tmp_path / "a.txt").write_text(text)
    found = pieces(tmp_path / "a.txt")
    assert "".join(found) == text
    assert [len(piece) for piece in found] == [66_000, 66_000, 66_000, 2_000]
    assert PIECE_BYTES == 65_536


@pytest.mark.parametrize("letter", ["x", "ä", "漢", "🙂"])
def test_long_lines_are_cut_between_characters(tmp_path, letter):
    """V-122: never inside one, at most 1 MiB."""
    text = "a" + letter * (2_500_000 // len(letter.encode()))
    (tmp_path / "a.txt").write_text(text)
    found = pieces(tmp_path / "a.txt")
    assert "".join(found) == text and len(found) == 3
    width = len(letter.encode())
    assert all(MAX_PIECE_BYTES - width < len(p.encode()) <= MAX_PIECE_BYTES for p in found[:-1])


@pytest.mark.parametrize("block", [1, 7, 1 << 20])
def test_pieces_do_not_depend_on_the_size_of_reads(tmp_path, monkeypatch, block):
    """V-122."""
    monkeypatch.setattr(corpus_text, "PIECE_BYTES", 64)
    monkeypatch.setattr(corpus_text, "MAX_PIECE_BYTES", 100)
    draw = random.Random(5)
    text = "".join(draw.choice("ab\n 漢ä🙂") * draw.randint(1, 40) for _ in range(300))
    (tmp_path / "a.txt").write_text(text)
    want = pieces(tmp_path / "a.txt")
    monkeypatch.setattr(corpus_text, "_READ_BYTES", block)
    assert pieces(tmp_path / "a.txt") == want and "".join(want) == text


def test_byte_order_mark_is_no_text(tmp_path):
    """V-121."""
    for name, data in (("a.txt", "hello"), ("a.jsonl", '{"text": "hello"}\n')):
        (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + data.encode())
        assert pieces(tmp_path / name) == ["hello"]


@pytest.mark.parametrize(
    ("name", "data", "what"),
    [
        ("a.txt", b"fine\nnot \xff fine", "byte 9: text is not UTF-8"),
        ("a.txt", b"", "has no token"),
        ("a.jsonl", b'{"text": "x"}\n{"text": 3}\n', "line has no text"),
        ("a.jsonl", b'{"text": "x"}\n\n{"body": "x"}\n', "line 3"),
        ("a.jsonl", b'{"text": "x"\n', "is no JSON"),
        ("a.jsonl", b"[" * 100_000, "is no JSON"),
        ("a.jsonl", b'{"text": "\xff"}', "is no JSON"),
        ("a.txt.gz", b"no gzip", "damaged"),
        ("a.txt.gz", gzip.compress(b"text" * 99)[:-9], "damaged"),
        ("a.txt.zst", b"no zstandard", "damaged"),
        ("a.txt.zst", zstandard.compress(os.urandom(4000))[:-9], "cut short"),
    ],
)
def test_what_is_no_text_is_refused_by_name_and_place(tmp_path, tokenizer, name, data, what):
    """V-125: one line."""
    (tmp_path / name).write_bytes(data)
    with pytest.raises(NinferError) as caught:
        count([tmp_path / name], tokenizer)
    text = str(caught.value)
    assert what in text and name in text and "\n" not in text


def test_lines_past_64_mib_are_refused(tmp_path, tokenizer, monkeypatch):
    """V-125: so that memory stays bounded; the limit is lowered here."""
    monkeypatch.setattr(corpus_text, "MAX_LINE_BYTES", 1000)
    (tmp_path / "a.jsonl").write_text('{"text": "x"}\n"' + "y" * 2_000_000)
    with pytest.raises(NinferError, match="line 2: line is too long"):
        count([tmp_path / "a.jsonl"], tokenizer)


@pytest.mark.parametrize("kind", ["missing", "folder"])
def test_what_is_no_file_is_refused(tmp_path, tokenizer, kind):
    """V-125."""
    path = tmp_path if kind == "folder" else tmp_path / "none.txt"
    with pytest.raises(UsageError, match=r"No such file|is no regular file"):
        count([path], tokenizer)


def test_names_come_repeated_or_by_commas(tmp_path):
    """V-120: a name with a comma is one name where there is such a file."""
    odd = tmp_path / "a,b.txt"
    odd.write_text("x")
    assert parse_corpora(["x,y", "z"]) == (Path("x"), Path("y"), Path("z"))
    assert parse_corpora([str(odd)]) == (odd,)
    with pytest.raises(UsageError, match="empty name"):
        parse_corpora(["x,,y"])


def test_missing_tokenizers_library_is_named(tmp_path, tokenizer, monkeypatch):
    """V-125."""
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(UsageError, match=r"needs tokenizers.*pip install"):
        count([next(iter(pack(tmp_path).values()))], tokenizer)


def shortlist(tmp_path, name, **options):
    folder = tmp_path / "m"
    if not folder.exists():
        build_checkpoint().write(folder)
    artifact = converted(folder, tmp_path / name, profile="bf16", proposal_rows=64, **options)
    return artifact.parameter("proposal/token_ids").decode()


def test_shortlist_holds_the_most_frequent_tokens_of_the_texts(tmp_path, tokenizer):
    """V-120 and V-20: counted here by a plain dictionary, sorted by a plain sort."""
    from tokenizers import Tokenizer

    text = "".join(chr(97 + i % 26) * (i % 7 + 1) + " " for i in range(400))
    path = tmp_path / "a.txt"
    path.write_text(text)
    ids = shortlist(tmp_path, "a.ninfer", ranking_corpus=[str(path)])
    made = Tokenizer.from_buffer(tokenizer)
    counts = Counter(made.encode(text, add_special_tokens=False).ids)
    special = {t["id"] for t in json.loads(tokenizer)["added_tokens"] if t["special"]}
    free = [i for i in sorted(range(TOKENS), key=lambda i: (-counts[i], i)) if i not in special]
    picked = [*free[: 64 - len(special)], *sorted(special)]
    assert list(ids) == sorted(picked, key=lambda i: -counts[i])


def test_saved_ranking_gives_the_same_bytes_as_the_texts(tmp_path):
    """V-124: one row of int64, one per embedding row; report and directory name its SHA-256."""
    path, saved = tmp_path / "a.txt", tmp_path / "r.i64"
    path.write_text(TEXT * 9)
    shortlist(tmp_path, "a.ninfer", ranking_corpus=[str(path)], save_ranking=saved)
    digest = hashlib.sha256(saved.read_bytes()).hexdigest()
    assert saved.stat().st_size == 8 * VOCAB_ROWS
    made = read_report(tmp_path / "a.ninfer")["ranking"]
    assert made["from"] == "corpus" and made["sha256"] == digest
    assert made["files"] == [
        {
            "file": "a.txt", "bytes": path.stat().st_size,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        }
    ]  # fmt: skip
    shortlist(tmp_path, "b.ninfer", ranking=saved)
    read = read_report(tmp_path / "b.ninfer")["ranking"]
    assert read == {"from": "file", "file": "r.i64", "sha256": digest}
    assert (tmp_path / "a.ninfer").read_bytes() == (tmp_path / "b.ninfer").read_bytes()


def test_report_says_where_there_is_no_ranking(tmp_path):
    """V-126."""
    ids = shortlist(tmp_path, "a.ninfer")
    report = read_report(tmp_path / "a.ninfer")
    assert report["ranking"] == {"from": "token ids"}
    assert any("has no ranking" in notice for notice in report["notices"])
    assert list(ids[:5]) == [0, 1, 2, 3, 4]


def test_dry_run_looks_at_texts_and_counts_nothing(tmp_path, capsys):
    """V-126: the size is that of the real run."""
    folder = build_checkpoint().write(tmp_path / "m")
    (tmp_path / "a.txt").write_text(TEXT)
    options = {"profile": "bf16", "proposal_rows": 64, "ranking_corpus": [str(tmp_path / "a.txt")]}
    capsys.readouterr()
    out = tmp_path / "a.ninfer"
    assert convert(folder, out, dry_run=True, json_output=True, **options) == 0
    record = json.loads(capsys.readouterr().out)
    assert any("counted when the conversion runs" in notice for notice in record["notices"])
    converted(folder, out, **options)
    assert record["files"] == {"a.ninfer": out.stat().st_size}


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"ranking": Path("r.i64"), "ranking_corpus": ["a"]}, "--ranking contradicts"),
        ({"no_proposal": True, "ranking_corpus": ["a"]}, "--no-proposal contradicts"),
        ({"save_ranking": Path("r.i64")}, "needs --ranking-corpus"),
    ],
)
def test_options_that_contradict_each_other_are_refused(tmp_path, options, what):
    """V-120."""
    folder = build_checkpoint().write(tmp_path / "m")
    with pytest.raises(UsageError, match=what):
        convert(folder, tmp_path / "a.ninfer", **options)


@pytest.mark.parametrize("kind", ["ranking", "ranking_corpus"])
def test_ranking_without_a_head_is_refused(tmp_path, capsys, kind):
    """V-120: small vocabularies have no head unless its rows are given."""
    folder = build_checkpoint().write(tmp_path / "m")
    path = tmp_path / "a.txt"
    path.write_text(TEXT)
    given = {kind: path if kind == "ranking" else [str(path)]}
    assert convert(folder, tmp_path / "a.ninfer", **given) == 1
    assert "--proposal-rows N" in capsys.readouterr().err


def test_equal_counts_put_special_tokens_after_the_others():
    """V-20: ids 2 and 5 are special; 3 is the most frequent, 1 and 2 occur once."""
    counts = np.array([0, 1, 1, 7, 0, 0, 0])
    assert list(choose_tokens(counts, {5, 2}, 5)) == [3, 1, 2, 0, 5]
