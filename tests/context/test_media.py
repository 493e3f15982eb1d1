"""Media of long ago are named instead of shown."""

from __future__ import annotations

import pytest

from monitor import ConfigError, UserMessage
from monitor.context import ClipResults, DropMedia, reduced, sizes_by_source
from monitor.context.reduce import without_media
from monitor.context.tokens import MESSAGE_TOKENS
from monitor.messages import Media
from monitor.models import ModelRequest
from tests.context.talk import IMAGE, ran, results, said, user, words

SHOWN = (user("look", IMAGE), said("I see."), user("and", IMAGE), said("I see."), user("now", IMAGE))


@pytest.mark.feature("OC-09")
def test_a_summariser_reads_the_names_of_media_and_short_results():
    read = reduced((*SHOWN, ran("x" * 9_000)), DropMedia(0), ClipResults())
    assert words(read)[::2] == [f"{text}[Attached image/png: chart.png]" for text in ("look", "and", "now")]
    assert len(results(read)[0]) < 2_100


@pytest.mark.parametrize(
    "media", [Media("application/pdf", uri="https://example.com/a"), Media("application/pdf", data="JVBERi0=")]
)
def test_media_without_a_name_are_a_file(media: Media):
    assert words((without_media(user(media)),)) == ["[Attached application/pdf: file]"]


def test_the_newest_turns_are_byte_identical():
    dropped = DropMedia(2).reduce(SHOWN)
    assert [new is old for new, old in zip(dropped, SHOWN, strict=True)] == [False, True, True, True, True]


def test_what_goes_moves_on_only_when_a_new_user_turn_starts():
    dropped = DropMedia(2).reduce(SHOWN)
    for later in (ran("ok"), said("done")):
        dropped = (*dropped, later)
        assert DropMedia(2).reduce(dropped) is dropped
    assert DropMedia(2).reduce((*dropped, user("next"))) != (*dropped, user("next"))


def test_the_head_and_a_history_without_media_are_left_as_they_are():
    assert DropMedia(0).reduce(SHOWN, head=5) is SHOWN
    plain = (user("go"), said("done"))
    assert DropMedia(0).reduce(plain) is plain
    assert DropMedia(0).reduce(SHOWN, head=1)[0] is SHOWN[0]


def test_a_message_of_media_alone_still_says_something():
    message = without_media(UserMessage((IMAGE, IMAGE)))
    assert words((message,)) == ["[Attached image/png: chart.png]" * 2]


def test_images_alone_have_no_text():
    """C16"""
    sizes = sizes_by_source(ModelRequest((user(IMAGE, IMAGE),)))
    assert sizes["user"].tokens == MESSAGE_TOKENS
    assert sizes["media"].tokens > 2 * 1_000 > sum(size.tokens for source, size in sizes.items() if source != "media")


def test_turns_are_a_whole_number():
    with pytest.raises(ConfigError, match="keep_turns is -1"):
        DropMedia(-1)
