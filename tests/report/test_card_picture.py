"""The card as a picture."""

from __future__ import annotations

import json
import os
import re
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from typer.testing import CliRunner

from monitor.cli.app import app
from monitor.cli.render import files as card_file
from monitor.report.card_picture import EDGE, HEIGHT, WIDTH, card_svg
from monitor.transcripts.analysis.survey import Card, SurveyedRun, survey
from monitor.transcripts.source import Source
from tests.report.browser import CHROMIUM
from tests.report.test_report_page import HOSTILE, run_of

TEXT = "{http://www.w3.org/2000/svg}text"
RECT = "{http://www.w3.org/2000/svg}rect"


def runs_of(*records: dict[str, Any]) -> list[SurveyedRun]:
    lines = "".join(json.dumps(record) + "\n" for record in records)
    return list(survey(Source.of_bytes("runs.jsonl", lines.encode())))


def card_of(*runs: SurveyedRun) -> Card:
    card = Card()
    for run in runs:
        card.add(run)
    return card


def drawn(card: Card, *, task: bool = False) -> ET.Element:
    return ET.fromstring(card_svg(card, task=task))


def words(picture: ET.Element) -> str:
    return " ".join(one.text or "" for one in picture.iter(TEXT))


def test_the_picture_says_what_looped_and_where_a_stop_would_have_come():
    (stuck,) = runs_of(run_of("look"))
    (fine,) = runs_of(run_of("fine", loop=False))
    told = words(drawn(card_of(replace(stuck, cost_usd=2.5, saved_usd=1.0), fine)))
    assert told.startswith("1 of 2 runs looped It was look 7 times with the same arguments, step 1 to 7,")
    assert "The run: 7 steps, for $2.50" in told
    assert "a stop would have come at step 5 of 7" in told
    assert "≥ $2.50 in all ≥ $1.00 avoidable" in told


def test_the_band_of_the_loop_is_what_a_stop_would_have_saved():
    (stuck,) = runs_of(run_of("look"))
    work, loop = (one for one in drawn(card_of(stuck)).iter(RECT) if one.get("class") in {"work", "loop"})
    room = WIDTH - 2 * EDGE
    assert float(work.get("width", 0)) == pytest.approx(room * 5 / 7, abs=0.1)
    assert float(loop.get("width", 0)) == pytest.approx(room * 2 / 7, abs=0.1)


def test_an_unknown_cost_is_called_unknown():
    told = words(drawn(card_of(*runs_of(run_of("look")))))
    assert "at an unknown cost" in told
    assert "unknown cost in all" in told
    assert "$0" not in told


def test_the_picture_has_what_was_asked_for_only_if_it_is_wanted():
    record = run_of("look")
    record["messages"][0]["text"] = "Tidy the garden of my aunt"
    card = card_of(*runs_of(record))
    assert "garden" not in card_svg(card)
    assert "“Tidy the garden of my aunt”" in words(drawn(card, task=True))


@pytest.mark.parametrize("text", [*HOSTILE, "sk-ant-api03-" + "a" * 80, "x" * 5_000, "字" * 300, "a\ufffeb\uffffc"])
def test_whatever_a_transcript_says_is_text_within_the_picture(text: str):
    picture = drawn(card_of(*runs_of(run_of(text))), task=True)
    plain = drawn(card_of(*runs_of(run_of("plain"))), task=True)
    assert {one.tag for one in picture.iter()} == {one.tag for one in plain.iter()}
    assert max(len(one.text or "") + (one.text or "").count("字") for one in picture.iter(TEXT)) <= 70
    assert "a" * 80 not in card_svg(card_of(*runs_of(run_of(text))), task=True)


def test_runs_without_a_loop_make_a_picture_without_a_time_line():
    picture = drawn(card_of(*runs_of(run_of("fine", loop=False))))
    assert words(picture).startswith("1 run, and none looped")
    assert [one.get("class") for one in picture.iter(RECT)] == ["ground"]


def test_the_picture_loads_nothing_and_is_the_same_each_time():
    card = card_of(*runs_of(run_of("look")))
    assert card_svg(card) == card_svg(card)
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|href|<script|@import|url\(", card_svg(card))


@pytest.mark.parametrize("command", [["scan"], ["report", "-o", "page.html"]])
def test_a_command_writes_the_picture(command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "runs.jsonl").write_text(json.dumps(run_of("look")) + "\n")
    done = CliRunner().invoke(app, [*command, "runs.jsonl", "--card", "card.svg"])
    assert done.exit_code in {0, 1}
    assert words(ET.parse(tmp_path / "card.svg").getroot()).startswith("1 run looped")


@pytest.mark.parametrize("name", ["card.jpg", "card", "missing/card.svg"])
def test_a_name_that_cannot_be_a_picture_is_refused_before_anything_is_read(name: str, tmp_path: Path):
    done = CliRunner().invoke(app, ["scan", str(tmp_path), "--card", str(tmp_path / name)])
    assert done.exit_code == 2
    assert "--card" in done.stderr


def picture_by(command: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The end of a scan that draws `card.png` in `folder`, where `command` is the only browser."""
    monkeypatch.setattr(card_file, "BROWSERS", (str(command),))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder.parent / "cache"))
    (folder / "runs.jsonl").write_text(json.dumps(run_of("look")) + "\n")
    return CliRunner().invoke(app, ["scan", str(folder / "runs.jsonl"), "--card", str(folder / "card.png")])


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed: apt-get install chromium")
def test_a_name_that_ends_in_png_makes_a_png_and_leaves_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (folder := tmp_path / "runs").mkdir()
    assert picture_by(Path(str(CHROMIUM)), folder, monkeypatch).exit_code == 1
    made = (folder / "card.png").read_bytes()
    assert made.startswith(b"\x89PNG")
    assert struct.unpack(">II", made[16:24]) == (WIDTH, HEIGHT)
    assert {one.name for one in folder.iterdir()} == {"runs.jsonl", "card.png"}


def test_a_png_without_a_browser_is_refused_with_the_name_that_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    done = picture_by(tmp_path / "no browser", tmp_path, monkeypatch)
    assert done.exit_code == 2
    assert "card.svg" in done.stderr


@pytest.mark.skipif(os.name != "posix", reason="a script in the place of a browser")
def test_a_browser_that_draws_nothing_is_named_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (folder := tmp_path / "runs").mkdir()
    (browser := tmp_path / "broken").write_text("#!/bin/sh\nexit 3\n")
    browser.chmod(0o755)
    done = picture_by(browser, folder, monkeypatch)
    assert done.exit_code == 2
    assert "broken drew no picture; name it card.svg" in done.stderr.replace("\n", " ")
    assert {one.name for one in folder.iterdir()} == {"runs.jsonl"}
