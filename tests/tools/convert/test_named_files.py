"""Files that a run reads and writes: specs/conversion.md, V-185 to V-189."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from builders.checkpoints import build_checkpoint
from builders.conversions import convert, converted
from ninfer_formats.errors import UsageError
from ninfer_formats.reader import list_parts
from ninfer_tools import verify_against
from ninfer_tools.convert.named_files import NamedFile, NamedFiles
from ninfer_tools.convert.request import parse_named_sources, parse_resources

TEXT = "the quick brown fox\n" * 20


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def folder(tmp_path):
    return build_checkpoint().write(tmp_path / "m")


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text(TEXT)
    return path


@pytest.mark.parametrize("target", ["shard", "corpus", "output", "report", "calibration", "link"])
def test_ranking_is_not_saved_over_anything_the_run_needs(tmp_path, folder, corpus, target):
    """V-185: also with --force, and through a link."""
    out, link = tmp_path / "a.ninfer", tmp_path / "link.i64"
    link.hardlink_to(folder / "model.safetensors")
    targets = {
        "shard": folder / "model.safetensors",
        "corpus": corpus,
        "output": out,
        "report": tmp_path / "a.ninfer.conversion.json",
        "calibration": tmp_path / "a.ninfer.calibration.json",
        "link": link,
    }
    before = contents(tmp_path)
    options = {"calibrate": corpus} if target == "calibration" else {}
    with pytest.raises(UsageError, match=r"the file of --save-ranking is "):
        convert(
            folder, out, ranking_corpus=[str(corpus)], save_ranking=targets[target],
            proposal_rows=64, force=True, **options,
        )  # fmt: skip
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    "option", ["recipe", "ranking", "ranking_corpus", "resources", "calibrate", "calibration"]
)
def test_output_is_not_written_over_the_file_of_an_option(tmp_path, folder, option):
    """V-185: the file is named by its option and stays as it is."""
    path = tmp_path / "x.py"
    path.write_text("def configure(model, recipe, sources):\n    pass\n")
    given = {
        "recipe": str(path),
        "ranking_corpus": [str(path)],
        "resources": [f"chat_template.jinja={path}"],
    }
    with pytest.raises(UsageError, match=rf"the output is the file of --{option[:7]}"):
        convert(folder, path, force=True, **{option: given.get(option, path)})
    assert path.read_text().startswith("def configure")


def test_saved_calibration_is_not_written_over_its_text(tmp_path, folder):
    """V-185: the name follows from --out, the file from --calibrate."""
    text = tmp_path / "zz.calibration.json"
    text.write_text(TEXT)
    with pytest.raises(UsageError, match="the calibration to save is the file of --calibrate"):
        convert(folder, tmp_path / "zz", calibrate=text, force=True)
    assert text.read_text() == TEXT


def test_parts_are_not_written_over_a_file_of_the_source(tmp_path, folder):
    """V-185: parts have names that only the plan knows."""
    options = {"max_file_bytes": 400_000, "force": True}
    converted(folder, tmp_path / "a.ninfer", **options)
    part = folder / list_parts(tmp_path / "a.ninfer")[0]
    part.write_text("precious")
    with pytest.raises(UsageError, match="artifact's part is a file of the source"):
        convert(folder, folder / "a.ninfer", **options)
    assert part.read_text() == "precious"


def test_names_are_compared_by_the_file_they_lead_to(tmp_path):
    """V-185: relative names, symbolic links to files and to folders, and files not there yet."""
    real = tmp_path / "real"
    real.mkdir()
    (real / "x").write_text("x")
    (tmp_path / "folder").symlink_to(real)
    (tmp_path / "file").symlink_to(real / "x")
    for read, write in (
        ("real/x", "folder/x"), ("file", "real/x"), ("real/x", "file"), ("real/../real/x", "real/x")
    ):  # fmt: skip
        files = NamedFiles(
            (NamedFile("the corpus", tmp_path / read),), (NamedFile("output", tmp_path / write),)
        )
        with pytest.raises(UsageError, match="the output is the corpus"):
            files.refuse_overlaps()
    twice = (NamedFile("output", real / "new"), NamedFile("report", tmp_path / "folder/new"))
    with pytest.raises(UsageError, match="the report is the output, too"):
        NamedFiles((), twice).refuse_overlaps()
    NamedFiles((NamedFile("a", real / "x"),), (NamedFile("b", real / "y"),)).refuse_overlaps()


@pytest.mark.parametrize("target", ["artifact", "source"])
def test_picture_replaces_neither_artifact_nor_source(tmp_path, folder, target):
    """V-186."""
    out = tmp_path / "a.png"
    converted(folder, out)
    (folder / "picture.svg").write_text("precious")
    before = contents(tmp_path)
    plot = {"artifact": out, "source": folder / "picture.svg"}[target]
    with pytest.raises(UsageError, match=r"the picture is (the artifact|a file of the source)"):
        verify_against.run(
            file=out, against=str(folder), sources=[], plot=plot, force=True,
            max_directory_bytes=1 << 28, json_output=True,
        )  # fmt: skip
    assert contents(tmp_path) == before


def fifo(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


@pytest.mark.parametrize(
    "make", [fifo, lambda tmp_path: Path("/dev/zero"), lambda tmp_path: tmp_path]
)
@pytest.mark.parametrize(
    "option", ["resources", "calibration", "calibrate", "ranking", "ranking_corpus", "recipe"]
)
def test_only_regular_files_are_read(tmp_path, folder, capsys, make, option):
    """V-187: what has no end, or waits for a writer, is refused at once."""
    path = make(tmp_path)
    given = {"resources": [f"tokenizer.json={path}"], "ranking_corpus": [str(path)]}
    if option == "recipe":
        (tmp_path / "r.py").symlink_to(path)
        given["recipe"] = str(tmp_path / "r.py")
    rows = {"proposal_rows": 64} if option.startswith("ranking") else {}
    try:
        assert convert(folder, tmp_path / "a.ninfer", **{option: given.get(option, path)}, **rows)
        message = capsys.readouterr().err
    except UsageError as error:
        message = str(error)
    assert "is no regular file" in message


def test_files_above_their_size_are_refused(tmp_path, folder):
    """V-187: without reading them."""
    path = tmp_path / "large.json"
    with path.open("wb") as file:
        file.truncate(300 << 20)
    for options in ({"resources": [f"tokenizer.json={path}"]}, {"calibration": path}):
        with pytest.raises(UsageError, match="file is too large"):
            convert(folder, tmp_path / "a.ninfer", **options)


def test_empty_names_are_refused(folder):
    """V-189: an empty SRC would be the current folder."""
    for name in ("", "."):
        with pytest.raises(UsageError, match="not a file name"):
            convert(folder, Path(name))
    with pytest.raises(UsageError, match="the source has no name"):
        parse_named_sources("", [])
    for items in (["tokenizer.json="], ["tokenizer.json=a", "tokenizer.json=b"]):
        with pytest.raises(UsageError, match="--resource"):
            parse_resources(items)
