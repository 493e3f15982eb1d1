"""`scripts/prose.py` finds hard sentences where they stand, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scripts.prose import CHECKED, MOST_WORDS, ROOT, files_in, hard, main, texts

LONG = " ".join(["word"] * (MOST_WORDS + 1)) + "."
SHORT = " ".join(["word"] * MOST_WORDS) + "."


@pytest.mark.parametrize(
    "sentence",
    [
        "Of the runs, so many were stuck.",
        "The model is told what is missing.",
        "A part of one's own is a class.",
        "Whoever asks gets it.",
        "What is unknown is refused.",
        "What cannot be read counts as missing.",
        "Who wants more asks again.",
        "All keys but for one are dropped.",
        "A setting that makes no sense is an error.",
    ],
)
def test_a_riddle_is_found(sentence: str):
    assert len(list(hard(sentence))) == 1


@pytest.mark.parametrize(
    "sentence",
    [
        SHORT,
        "`tools`: what is special about a tool.",
        "What is lost?",
        "There are so many as before.",
        f"One sentence. {SHORT} Another; {SHORT} a third: {SHORT}",
        f"**A claim.** {SHORT}",
        f'A quotation." {SHORT}',
    ],
)
def test_a_plain_sentence_is_not_found(sentence: str):
    assert list(hard(sentence)) == []


def test_a_sentence_of_more_words_is_found_with_its_number_of_words():
    assert next(hard(LONG)).startswith(f"{MOST_WORDS + 1} words: ")


def test_an_item_of_a_list_is_a_sentence_and_so_is_what_continues_it():
    assert list(hard(f"- {SHORT}\n- {SHORT}")) == []
    assert len(list(hard(f"10. word word\n    {SHORT}"))) == 1


@pytest.mark.parametrize(
    "code", [f"```\n{LONG}\n```", f"Text.\n\n    {LONG}\n\n    {LONG}\n", f"| {LONG} |", f"# {LONG}"]
)
def test_code_tables_and_headings_are_not_sentences(code: str):
    assert list(hard(code)) == []


def test_a_riddle_in_a_table_is_found():
    assert len(list(hard("| key | meaning |\n| --- | --- |\n| `a` | whoever asks |\n"))) == 1


def test_docstrings_comments_and_descriptions_of_attributes_are_read(tmp_path: Path):
    file = tmp_path / "module.py"
    file.write_text(
        f'"""{LONG}"""\n\nX = 1\n"""{LONG}"""\n\n\ndef f():\n    """Short.\n\n    {LONG}\n    """\n'
        f'    # {LONG}\n    return "{LONG}"\n'
    )
    assert sum(len(list(hard(text))) for _, text in texts(file)) == 4


def test_a_comment_over_several_lines_is_one_text(tmp_path: Path):
    file = tmp_path / "module.py"
    half = " ".join(["word"] * (MOST_WORDS // 2 + 1))
    file.write_text(f"# {half}\n# {half}\nx = 1\n# {half}\n")
    assert sum(len(list(hard(text))) for _, text in texts(file)) == 1


def test_the_exit_code_says_whether_anything_was_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    page = tmp_path / "page.md"
    page.write_text(SHORT)
    assert main([str(tmp_path)]) == 0
    assert capsys.readouterr().out == "words: clean\n"
    page.write_text(LONG)
    assert main([str(tmp_path)]) == 1
    assert "1 sentences to look at in 1 files" in capsys.readouterr().out


def test_a_path_that_is_not_there_is_an_error_and_not_clean(tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        main([str(tmp_path / "missing")])


def test_everything_that_is_checked_by_default_is_there():
    assert {"monitor", "docs", "examples", "README.md", "CHANGELOG.md", "CONTRIBUTING.md"} <= set(CHECKED)
    assert len(files_in([str(ROOT / name) for name in CHECKED])) > 200


def test_it_runs_as_a_script(tmp_path: Path):
    (tmp_path / "page.md").write_text(LONG)
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "prose.py"), str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert f"{MOST_WORDS + 1} words" in done.stdout
