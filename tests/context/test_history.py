"""One owner of the history: edits are proposed against a version, and nothing original is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor import AssistantMessage, ConfigError, UserMessage
from monitor.chunks import ToolCall, ToolResult
from monitor.context import CommittedEdit, History, HistoryEdit, Stale
from monitor.messages import Message, Text


def user(text: str) -> UserMessage:
    return UserMessage((Text(text),))


def users(texts: str) -> tuple[UserMessage, ...]:
    return tuple(map(user, texts))


def shown(history: History) -> str:
    return words(history.messages)


def words(messages: tuple[Message, ...]) -> str:
    return "".join(part.text for message in messages for part in message.content if isinstance(part, Text))


def edit(history: History, start: int, stop: int, texts: str = "") -> HistoryEdit:
    return HistoryEdit(history.version, start, stop, users(texts), "test")


def test_every_change_is_a_version_and_messages_are_the_same_object_in_between():
    history = History(users("abc"))
    assert (history.version, shown(history)) == (0, "abc")
    assert history.messages is history.messages
    history.append(user("d"))
    assert (history.version, shown(history), len(history)) == (1, "abcd", 4)
    history.commit(edit(history, 0, 2, "S"))
    assert (history.version, shown(history)) == (2, "Scd")


def test_an_edit_that_is_not_committed_changes_nothing():
    history = History(users("abc"))
    before = history.messages
    assert words(edit(history, 1, 3, "X").applied_to(history.messages)) == "aX"
    assert history.messages is before


def test_messages_that_came_later_stay_behind_the_edit():
    history = History(users("abc"))
    late = edit(history, 0, 3, "S")
    history.append(user("d"))
    assert isinstance(history.commit(late), CommittedEdit)
    assert shown(history) == "Sd"


def test_an_edit_of_what_another_edit_has_changed_is_stale_and_changes_nothing():
    history = History(users("abcdef"))
    first, second = edit(history, 1, 4, "S"), edit(history, 3, 5, "T")
    committed = history.commit(first)
    before = history.messages
    assert history.commit(second) == Stale(second, committed)  # type: ignore[arg-type]
    assert history.messages is before
    assert history.edits == (committed,)


def test_the_same_edit_is_committed_once():
    history = History(users("ab"))
    once = edit(history, 0, 1, "A")
    assert isinstance(history.commit(once), CommittedEdit)
    assert isinstance(history.commit(once), Stale)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ((0, 2, "S"), (3, 4, "x"), "Scxef"),
        ((3, 4, "x"), (0, 2, "S"), "Scxef"),
        ((0, 2, ""), (2, 3, "x"), "xdef"),
        ((2, 2, "123"), (2, 4, "x"), "ab123xef"),
        ((2, 4, "x"), (2, 2, "123"), "ab123xef"),
        ((2, 4, "x"), (4, 4, "123"), "abx123ef"),
        ((2, 2, "1"), (2, 2, "2"), "ab21cdef"),
    ],
)
def test_edits_of_different_messages_do_not_disturb_each_other(
    first: tuple[int, int, str], second: tuple[int, int, str], expected: str
) -> None:
    history = History(users("abcdef"))
    both = edit(history, *first), edit(history, *second)
    for one in both:
        assert isinstance(history.commit(one), CommittedEdit)
    assert shown(history) == expected


def test_an_insertion_into_what_was_replaced_is_stale():
    history = History(users("abcd"))
    into = edit(history, 2, 2, "x")
    history.commit(edit(history, 1, 3, "S"))
    assert isinstance(history.commit(into), Stale)


def test_originals_stay_readable_behind_every_message_that_stands_for_them():
    history = History(users("abcdef"))
    history.commit(edit(history, 1, 3, "BC"))  # as many: each for its own
    assert words(history.behind(1, 2)) == "b"
    history.commit(edit(history, 0, 4, "S"))
    assert words(history.behind(0, 1)) == "abcd"
    history.commit(edit(history, 0, 2, "T"))
    assert words(history.behind(0, 1)) == "abcde"
    history.commit(edit(history, 0, 1))
    assert (shown(history), words(history.behind(0, 1)), words(history.originals)) == ("f", "f", "abcdef")
    assert [words(one.replaced) for one in history.edits] == ["bc", "aBCd", "Se", "T"]


@pytest.mark.parametrize(("start", "stop"), [(-1, 1), (2, 1), (0, 4), (4, 4)])
def test_an_edit_of_messages_that_there_were_none_of_is_an_error(start: int, stop: int) -> None:
    history = History(users("abc"))
    wrong = edit(history, start, stop)
    history.append(user("d"))
    with pytest.raises(ConfigError, match="version 0 has 3"):
        history.commit(wrong)


@pytest.mark.parametrize("version", [-1, 1])
def test_an_edit_of_a_version_that_there_was_not_is_an_error(version: int) -> None:
    with pytest.raises(ConfigError, match="is at version 0"):
        History(users("a")).commit(HistoryEdit(version, 0, 1, (), "test"))


def test_a_result_without_its_call_has_no_way_in():
    call, result = ToolCall("1", "look", {}), ToolResult("1", "look", "seen")
    History([AssistantMessage((call, call), (result, result))])
    orphan = AssistantMessage((call,), (result, result))
    history = History(users("a"))
    with pytest.raises(ConfigError, match="result without its call: '1'"):
        history.append(orphan)
    with pytest.raises(ConfigError, match="result without its call"):
        history.commit(HistoryEdit(0, 0, 1, (orphan,), "test"))
    with pytest.raises(ConfigError, match=r"not dict; monitor\.context\.repair\(monitor\.context\.read_history\(form"):
        history.append({"role": "user"})  # type: ignore[arg-type]
    assert (history.version, shown(history)) == (0, "a")


@given(st.data())
def test_whatever_is_proposed_and_committed_when_the_history_is_what_an_editor_by_hand_would_write(
    data: st.DataObject,
) -> None:
    """Against a model that keeps, for every message, a name that no other message ever had."""
    history, names = History(), 0
    line: list[str] = []
    pending: list[tuple[HistoryEdit, list[str]]] = []
    for _ in range(data.draw(st.integers(1, 25))):
        step = data.draw(st.sampled_from(["append", "propose", "commit"]))
        if step == "append":
            names += 1
            history.append(user(f"<{names}>"))
            line.append(f"<{names}>")
        elif step == "propose":
            start = data.draw(st.integers(0, len(line)))
            stop = data.draw(st.integers(start, len(line)))
            new = tuple(f"<{(names := names + 1)}>" for _ in range(data.draw(st.integers(int(start == stop), 3))))
            pending.append((HistoryEdit(history.version, start, stop, tuple(map(user, new)), "test"), line[start:stop]))
        elif pending:
            one, targets = pending.pop(data.draw(st.integers(0, len(pending) - 1)))
            done = history.commit(one)
            if targets and all(name in line for name in targets):
                at = line.index(targets[0])
                if line[at : at + len(targets)] == targets:
                    assert isinstance(done, CommittedEdit)
                    line[at : at + len(targets)] = [words((message,)) for message in one.replacement]
                else:
                    assert isinstance(done, Stale)  # something was put between them
            elif targets:
                assert isinstance(done, Stale)
            elif isinstance(done, CommittedEdit):
                line[done.start : done.start] = [words((message,)) for message in one.replacement]
        assert shown(history) == "".join(line)
    everything = [words((message,)) for message in history.originals]
    assert everything == sorted(everything, key=lambda name: int(name[1:-1]))
