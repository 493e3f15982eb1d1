"""What stays beside every summary."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor._util.text import foreign
from monitor.adapters.provider_forms import to_form
from monitor.chunks import ToolCall, ToolResult
from monitor.context.compaction import pinned as composed_text
from monitor.context.compaction.hooks import CompactionDetails
from monitor.context.compaction.pinned import (
    ACKNOWLEDGEMENT,
    CONTINUE,
    CONTINUE_WITHOUT_MEDIA,
    FOOTER,
    HEADER,
    LADDER,
    PinnedFacts,
    acknowledgement,
    compose,
    fitted,
    gathered,
    head_of_messages,
    read_back,
    recognised,
    shortened,
)
from monitor.context.repairs import repair
from monitor.context.tokens import size_of_text
from monitor.errors import ConfigError
from monitor.messages import AssistantMessage, Media, Message, Text, UserMessage
from monitor.verdicts import VETO
from monitor.wires.fields import Form
from monitor.wires.read import read_history

MUCH = 10_000_000

any_text = st.text(max_size=60) | st.text(st.characters(codec=None), max_size=20)
"""Lone surrogates and NUL as well."""
tricky = st.sampled_from(
    [
        HEADER,
        FOOTER,
        CONTINUE,
        "",
        "\n",
        " ",
        "12 characters: x",
        "- 3 characters: abc\n",
        "12 characters:",
        "3 characters:\nabc",
        "1. abc\n2. 3 characters:\nabc\n",
        "(Messages 2 to 5 of 9 are left out here; they stay in the originals.)\n",
        "a =",
        "= a",
        "a = b",
        "3 and 4 characters: abc = abcd",
        "\nMessages of the user: 9\n",
        "\nOutputs that earlier runs of the conversation gave: 1, left out: 2\n",
        "\nPlan, 3 characters:\nabc\n",
        f"\n{VETO} Plan, 3 characters:\nabc\n",
        f"\\{VETO}\\\\{VETO.upper()}",
        "\n[... 1,234 characters are left out here ...]\n",
        compose("earlier", PinnedFacts(user_messages=("a", "b"), plan="p"), max_tokens=MUCH),
        "👩\u200d💻\x00\ud800",
    ]
)
words = any_text | tricky | st.lists(any_text | tricky, max_size=4).map("".join)
many = st.lists(words, max_size=4).map(tuple)
long = st.builds(lambda text, times: text * times, words, st.integers(1, 400))


@st.composite
def facts_of(draw: st.DrawFn, text: st.SearchStrategy[str] = words) -> PinnedFacts:
    user_messages = tuple(draw(st.lists(text, max_size=8)))
    references_left_out = draw(st.integers(0, 30))
    return PinnedFacts(
        user_messages=user_messages,
        left_out=draw(st.integers(0, 30)) if user_messages else 0,
        emitted=draw(st.dictionaries(words, text, max_size=3)),
        earlier_outputs=draw(st.dictionaries(words, text, max_size=3)),
        outputs_left_out=draw(st.integers(0, 30)),
        outstanding=draw(many),
        plan=draw(st.none() | text),
        rules=draw(st.none() | text),
        identifiers=draw(many),
        listed=draw(many),
        details=draw(
            st.builds(CompactionDetails, files_read=many, files_modified=many, artifacts=many, tool_notes=many)
        ),
        notes=draw(many),
        references=draw(many),
        references_left_out=references_left_out,
        reference_list=draw(st.none() | text) if references_left_out else None,
    )


def pinned_tokens(text: str, summary: str) -> int:
    return (size_of_text(text)).tokens - size_of_text(summary).tokens


@given(words, facts_of())
def test_what_was_composed_is_read_back(summary: str, facts: PinnedFacts):
    text = compose(summary, facts, max_tokens=MUCH)
    assert read_back(text) == (summary, facts)


@given(words, facts_of(long), st.integers(0, 2_000))
def test_composing_what_was_read_back_gives_the_same_bytes(summary: str, facts: PinnedFacts, room: int):
    text = compose(summary, facts, max_tokens=room)
    back = read_back(text)
    assert back is not None
    assert compose(*back, max_tokens=room) == text


@given(facts_of(long), st.integers(0, 2_000))
def test_fitting_twice_does_nothing_more_and_keeps_the_count_and_the_names(facts: PinnedFacts, room: int):
    fit = fitted(facts, max_tokens=room)
    assert fitted(fit, max_tokens=room) == fit
    assert len(fit.user_messages) + fit.left_out == len(facts.user_messages) + facts.left_out
    assert list(fit.emitted) == list(facts.emitted)
    assert len(fit.earlier_outputs) + fit.outputs_left_out == len(facts.earlier_outputs) + facts.outputs_left_out
    assert len(fit.outstanding) == len(facts.outstanding)
    assert len(fit.references) + fit.references_left_out == len(facts.references) + facts.references_left_out


@given(words, facts_of(), st.data())
def test_any_other_text_is_not_read_back(summary: str, facts: PinnedFacts, data: st.DataObject):
    text = compose(summary, facts, max_tokens=MUCH)
    at = data.draw(st.integers(0, len(text) - 1))
    for other in (text[:at], text[:at] + text[at + 1 :], text + "x", "x" + text, text + text):
        back = read_back(other)
        assert back is None or compose(*back, max_tokens=MUCH) == other


@pytest.mark.parametrize(
    "text", ["", HEADER, HEADER + FOOTER, f"{HEADER}\n\nSummary, 99 characters:\nx\n{FOOTER}", CONTINUE]
)
def test_what_only_begins_alike_is_not_read_back(text: str):
    assert read_back(text) is None


@pytest.mark.feature("CC-07")
@given(st.lists(st.lists(words, max_size=3), min_size=20, max_size=20))
def test_every_user_message_is_there_word_for_word_after_twenty_compactions(rounds: list[list[str]]):
    said: list[str] = []
    text = compose("", PinnedFacts(), max_tokens=MUCH)
    for number, new in enumerate(rounds):
        history: list[Message] = [UserMessage((Text(text),))]  # stored as text
        for words_of_user in new:
            history += [UserMessage((Text(words_of_user),)), AssistantMessage((Text("yes"),))]
            if words_of_user != CONTINUE:
                said.append(words_of_user)
        text = compose(f"summary {number}", gathered(recognised(history)), max_tokens=MUCH)
    back = read_back(text)
    assert back is not None
    assert back[1].user_messages == tuple(said)


@given(st.text(), st.data())
def test_shortening_in_steps_is_shortening_at_once(text: str, data: st.DataObject):
    text *= data.draw(st.integers(1, 500))
    more = data.draw(st.sampled_from(LADDER[-8:]))
    less = data.draw(st.sampled_from([chars for chars in LADDER if chars <= more]))
    assert shortened(shortened(text, more), less) == shortened(text, less)


def test_a_shortened_text_says_how_much_is_left_out():
    text = shortened("a" * 1_000 + "b" * 1_000, 200)
    assert text == "a" * 133 + "\n[... 1,800 characters are left out here ...]\n" + "b" * 67


def test_long_user_messages_between_the_first_and_the_newest_are_cut_before_those():
    facts = PinnedFacts(user_messages=("first " * 100, "long " * 5_000, "short", "newest " * 300))
    fit = fitted(facts, max_tokens=2_000)
    assert (fit.user_messages[0], *fit.user_messages[2:]) == (facts.user_messages[0], "short", facts.user_messages[3])
    assert "characters are left out here" in fit.user_messages[1]
    assert pinned_tokens(compose("", fit, max_tokens=2_000), "") <= 2_001


def test_a_user_message_of_a_megabyte_leaves_room_for_the_others():
    facts = PinnedFacts(
        user_messages=("fix the build", *("a word " * 20 for _ in range(40)), "log: " + "0123456789 " * 100_000)
    )
    fit = fitted(facts, max_tokens=4_000)
    assert fit.user_messages[:-1] == facts.user_messages[:-1]
    assert fit.user_messages[-1].startswith("log: 0123456789")
    assert size_of_text(compose("", fit, max_tokens=4_000)).tokens <= 4_001


def test_of_thousands_of_user_messages_the_oldest_behind_the_first_are_left_out_and_counted():
    facts = PinnedFacts(user_messages=tuple(f"request {number} {'please ' * 30}" for number in range(4_000)))
    text = compose("done so far: much", facts, max_tokens=8_000)
    back = read_back(text)
    assert back is not None
    left_out = back[1].left_out
    assert (
        f"\n(Messages 2 to {left_out + 1} of 4000 are left out here; they stay in the originals.)\n{left_out + 2}. "
        in text
    )
    assert back[1].user_messages[-1] == facts.user_messages[-1]
    assert back[1].user_messages[0].startswith("request 0 ")
    assert "\n4000. " in text
    assert len(back[1].user_messages) + left_out == 4_000
    assert pinned_tokens(text, "done so far: much") <= 8_001


def test_names_of_outputs_are_there_even_where_nothing_fits():
    facts = PinnedFacts(
        user_messages=("a" * 10_000, "b" * 10_000),
        emitted={"plan": '{"steps": "' + "s" * 5_000 + '"}'},
        outstanding=("report: what was found", "files"),
        rules="r" * 9_000,
        identifiers=tuple(f"file{number}.py" for number in range(100)),
    )
    text = compose("s", facts, max_tokens=10)
    assert " plan = " in text
    assert "- report\n- files\n" in text
    assert len(text) < 2_500


def test_the_newest_of_lists_stays():
    names = tuple(f"/srv/{number}.py" for number in range(100))
    facts = PinnedFacts(identifiers=names, details=CompactionDetails(files_read=names))
    fit = fitted(facts, max_tokens=500)
    assert fit.identifiers == names[: len(fit.identifiers)]
    assert fit.details.files_read == names[-len(fit.details.files_read) :]
    assert fit.identifiers


def test_what_fits_is_given_back_as_it_is():
    facts = PinnedFacts(user_messages=("hello",), plan="- do it")
    assert fitted(facts, max_tokens=1_000) is facts


def test_what_the_monitor_said_is_no_message_of_a_person():
    composed = compose("s", PinnedFacts(user_messages=("no",)), max_tokens=MUCH)
    history: list[Message] = [
        UserMessage((Text("fix it"), Media("image/png", data="aGk=", name="screen.png"))),
        UserMessage((Text(CONTINUE),)),
        UserMessage((Text(CONTINUE_WITHOUT_MEDIA),)),
        UserMessage((Text("You repeat yourself."),), synthetic=True),
        UserMessage((Text(composed),)),
        UserMessage((Text(f"What is this? {HEADER}"),)),
        UserMessage(()),
    ]
    said = ("fix it\n[Attached image/png: screen.png]", composed, f"What is this? {HEADER}", "")
    assert gathered(recognised(history)).user_messages == said, "a composed text is the monitor's at the beginning only"
    assert gathered(history).user_messages == (
        said[0],
        CONTINUE,
        CONTINUE_WITHOUT_MEDIA,
        *said[1:],
    ), "within a run no text is asked"


def test_facts_of_an_earlier_compaction_come_first():
    earlier = PinnedFacts(user_messages=("one",), left_out=3, identifiers=("OLD_NAME",), rules="be kind")
    call = ToolCall("1", "write_file", {"path": "src/a.py"})
    history: list[Message] = [
        UserMessage((Text("two, in config.toml"),)),
        AssistantMessage((call,), (ToolResult("1", "write_file", "ok"),)),
    ]
    facts = gathered(history, earlier)
    assert facts.user_messages == ("one", "two, in config.toml")
    assert (facts.left_out, facts.rules) == (3, "be kind")
    assert facts.identifiers == ("OLD_NAME",), "the file and what the user said are pinned as they are"
    assert facts.details.files_modified == ("src/a.py",)


def test_the_head_of_a_history_is_known():
    text = compose("s", PinnedFacts(), max_tokens=MUCH)
    head, user = UserMessage((Text(text),), synthetic=True), UserMessage((Text("go on"),))
    assert head_of_messages([]) == 0
    assert head_of_messages([UserMessage((Text(text),))]) == 0
    assert head_of_messages([user, head]) == 0
    assert head_of_messages([acknowledgement()]) == 0
    assert head_of_messages([head, AssistantMessage((Text("hm"),))]) == 1
    assert head_of_messages([head, acknowledgement(), user]) == 2
    assert head_of_messages([head, AssistantMessage((Text(ACKNOWLEDGEMENT),)), user]) == 1, "a model may say that too"
    assert acknowledgement().content == (Text(ACKNOWLEDGEMENT),)
    stored = [replace(message, synthetic=False) for message in (head, acknowledgement(), user)]
    assert head_of_messages(recognised(stored)) == 2
    assert [message.synthetic for message in recognised(stored)] == [True, True, False]
    assert [message.synthetic for message in recognised([user, *stored])] == [False, False, False, False]


def test_messages_cannot_be_left_out_around_none():
    with pytest.raises(ConfigError, match="left_out"):
        PinnedFacts(left_out=1)
    with pytest.raises(ConfigError, match="left_out"):
        replace(PinnedFacts(user_messages=("a",)), left_out=-1)
    with pytest.raises(ConfigError, match="outputs_left_out"):
        PinnedFacts(outputs_left_out=-1)


def test_outputs_that_earlier_runs_gave_are_pinned_too():
    def emits(name: str, value: object, *, accepted: bool = True) -> AssistantMessage:
        call = ToolCall(f"call_{name}", "emit_value", {"name": name, "value": value})
        return AssistantMessage((call,), (ToolResult(call.id, "emit_value", "noted", is_error=not accepted),))

    other = ToolCall("1", "emit_value", "{half")
    said = [
        emits("risk", 0.25),
        emits("owner", "unknown", accepted=False),
        AssistantMessage((other,), (ToolResult("1", "emit_value", "?"),)),
        emits("risk", 0.5),
    ]
    assert gathered(said, PinnedFacts(emitted={"summary": '"short"'})).emitted == {"summary": '"short"', "risk": "0.5"}


def test_a_message_of_one_line_costs_little_more_than_its_words():
    said = "Go through part 12 of the service and report what is wrong with it."
    text = compose("", PinnedFacts(user_messages=(said,) * 100), max_tokens=MUCH)
    assert f"\n99. {said}\n100. {said}\n" in text
    assert len(text) < 100 * (len(said) + 10)


def test_user_messages_are_worth_more_than_outputs_of_earlier_runs_and_those_of_this_run_more():
    facts = PinnedFacts(
        user_messages=tuple(f"request {number}: {'look at it ' * 10}" for number in range(100)),
        earlier_outputs={f"finding_{number}": f'"it is {number}"' for number in range(200)},
        emitted={"report": '"good"'},
    )
    fit = fitted(facts, max_tokens=4_500)
    assert (fit.user_messages, fit.emitted) == (facts.user_messages, facts.emitted)
    assert 0 < fit.outputs_left_out < 200
    assert tuple(fit.earlier_outputs.items()) == tuple(facts.earlier_outputs.items())[fit.outputs_left_out :]
    text = compose("", fit, max_tokens=4_500)
    assert size_of_text(text).tokens <= 4_501
    assert (
        f"\n{VETO} Outputs that earlier runs of the conversation gave: {len(fit.earlier_outputs)}, left out:"
        f" {fit.outputs_left_out}\n" in text
    )


def test_names_that_files_and_short_messages_say_are_not_said_again():
    call = ToolCall("1", "read_file", {"path": "src/a.py"})
    history: list[Message] = [
        UserMessage((Text("The report goes to /srv/final.md."),)),
        UserMessage((Text("/srv/long.md " + "and more " * 30),)),
        AssistantMessage(
            (Text("I read src/a.py for /srv/final.md and JOB-7."), call),
            (ToolResult("1", "read_file", "by JOB-8, JOB-7"),),
        ),
    ]
    facts = gathered(history)
    assert facts.identifiers == ("JOB-7", "/srv/long.md")
    assert facts.listed == ("JOB-8",)


def test_a_name_that_results_gave_before_an_earlier_compaction_is_worth_more_once_it_is_used():
    earlier = PinnedFacts(listed=("JOB-7", "JOB-8"))
    call = ToolCall("1", "cancel", {"job": "JOB-8"})
    facts = gathered([AssistantMessage((call,), (ToolResult("1", "cancel", "done"),))], earlier)
    assert (facts.identifiers, facts.listed) == (("JOB-8",), ("JOB-7",))


# --- the form before, and whose text it is


COMPOSED = compose(
    "## Goal", PinnedFacts(user_messages=("fix it", "now"), rules="be kind", plan="- a"), max_tokens=MUCH
)


def headings(text: str) -> list[str]:
    """The lines that speak with the monitor's mark."""
    return [line for line in text.splitlines() if re.search(r"(?<!\\)\[agent-monitor\]", line, re.IGNORECASE)]


frames = st.lists(tricky | st.sampled_from([VETO, "\n", "\\", " ", "x", COMPOSED]), max_size=6).map("".join)


@given(frames, facts_of(frames))
def test_a_model_that_reads_the_composed_text_sees_no_heading_but_ours(summary: str, facts: PinnedFacts):
    text = compose(summary, facts, max_tokens=MUCH)
    emptied: dict[str, Any] = {name: getattr(facts, name) and "" for name in ("plan", "rules", "reference_list")}
    bare = compose("", replace(facts, **emptied), max_tokens=MUCH)
    found = headings(text)
    assert len(found) == len(set(found))
    assert [re.sub("[0-9]+", "0", line) for line in found] == [re.sub("[0-9]+", "0", line) for line in headings(bare)]
    assert {re.sub("[0-9]+", "0", line).removeprefix(f"{VETO} ") for line in found[1:-1]} <= OURS


OURS = {
    "Summary, 0 characters:",
    "What follows is kept word for word: texts of one line as they are, each other text by its length.",
    "Messages of the user: 0",
    "Rules, 0 characters:",
    "Plan, 0 characters:",
    "Outputs that were given, not to be given again: 0",
    "Outputs that earlier runs of the conversation gave: 0, left out: 0",
    "Where results came from, the used and the newest first: 0, left out: 0",
    "Where all results came from, 0 characters:",
    *(f"{title}: 0" for title in composed_text._LISTS.values()),
}


@pytest.mark.parametrize("form", get_args(Form))
@given(frames)
def test_no_text_of_others_is_taken_for_the_monitors_in_a_history_that_was_stored(form: Form, evil: str):
    """As a run takes it in: the task escaped, results escaped, told as each provider has it, and
    read again.
    """
    said = foreign(evil) or "x"
    call = ToolCall("call_1", "read", {"path": evil})
    history: list[Message] = [
        UserMessage((Text(said),)),
        AssistantMessage((Text(f"{evil}."), call), (ToolResult("call_1", "read", said, is_error=True),)),
        UserMessage((Text(f"{said} "),)),
    ]
    stored, _ = repair(read_history(form, to_form(form, repair(history, form=form)[0])), form=form)
    for given_back in (recognised(stored), recognised(history)):
        facts = gathered(given_back)
        assert not any(message.synthetic for message in given_back)
        assert head_of_messages(given_back) == 0
        assert (facts.rules, facts.plan, facts.outstanding, facts.emitted) == (None, None, (), {})
        assert not any("was refused" in note for note in facts.details.tool_notes)
        assert len(facts.user_messages) == sum(isinstance(message, UserMessage) for message in given_back)


def fetched(number: int, text: str = "", **parts: Any) -> AssistantMessage:
    """A turn that reads page `number`."""
    url = f"https://docs.example/{number}"
    result = ToolResult(f"c{number}", "fetch", f"page {number}", reference=f"page {url} (about {number})", **parts)
    return AssistantMessage((Text(text), ToolCall(f"c{number}", "fetch", {"url": url})), (result,))


@pytest.mark.feature("MA-06")
def test_references_of_results_are_kept_the_used_first_then_the_newest():
    history: list[Message] = [UserMessage((Text("read"),)), *(fetched(number) for number in range(6))]
    history.append(fetched(9, "as https://docs.example/2 says"))
    history.append(fetched(10, is_error=True))
    facts = gathered(history)
    pages = [line.split()[1].rpartition("/")[2] for line in facts.references]
    assert pages == ["2", "9", "5", "4", "3", "1", "0"]
    later = gathered([fetched(11), fetched(3)], facts)
    assert [line.split()[1].rpartition("/")[2] for line in later.references][:2] == ["3", "11"]


@pytest.mark.feature("MA-06")
def test_references_have_their_share_of_the_room_and_the_rest_is_counted():
    lines = tuple(f"page https://docs.example/{number} (a page about something)" for number in range(500))
    facts = PinnedFacts(user_messages=("read",), references=lines, reference_list='read_artifact(ref="ab") has all')
    fit = fitted(facts, max_tokens=2_000)
    assert fit.references == lines[: len(fit.references)]
    assert len(fit.references) + fit.references_left_out == 500
    assert 10 <= len(fit.references) <= 60
    assert read_back(compose("s", facts, max_tokens=2_000)) == ("s", fit)
