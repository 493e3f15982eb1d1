import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.chunks import Chunk, ReasoningDelta, TextDelta, ToolCall, ToolCallDelta, TurnFinished
from monitor.errors import ConfigError, FinishReason
from monitor.testing import cut, rechunk

SIZES = st.lists(st.integers(0, 9), min_size=1, max_size=5).filter(any)
DELTAS = st.one_of(
    st.builds(TextDelta, st.text(max_size=5)),
    st.builds(ReasoningDelta, st.text(max_size=5), st.sampled_from([None, None, "signature"])),
    st.builds(ToolCallDelta, st.sampled_from(["a", "b"]), st.sampled_from([None, None, "ls"]), st.text(max_size=5)),
    st.just(TurnFinished(FinishReason.DONE)),
)


def joined(chunks: list[Chunk]) -> list[Chunk]:
    return rechunk(chunks, 1_000_000)


def test_text_is_cut_at_the_given_sizes_in_turn():
    assert cut("abcdefgh", [1, 2]) == ["a", "bc", "d", "ef", "g", "h"]
    assert cut("abcde", 2) == ["ab", "cd", "e"]
    assert cut("ab", [0, 1]) == ["", "a", "", "b"]
    assert cut("", 3) == []


@pytest.mark.parametrize("sizes", [0, -1, [], [0], [1, -1]])
def test_sizes_that_lead_nowhere_are_refused(sizes: int | list[int]):
    with pytest.raises(ConfigError, match="sizes="):
        cut("abc", sizes)


def test_neighbouring_deltas_of_one_channel_are_joined_and_cut_anew():
    done = TurnFinished(FinishReason.DONE)
    call = ToolCall("a", "ls", {})
    chunks: list[Chunk] = [TextDelta("ab"), TextDelta("cd"), ReasoningDelta("think"), call, TextDelta("e"), done]
    assert rechunk(chunks, 3) == [
        TextDelta("abc"),
        TextDelta("d"),
        ReasoningDelta("thi"),
        ReasoningDelta("nk"),
        call,
        TextDelta("e"),
        done,
    ]


def test_the_name_comes_with_the_first_piece_and_calls_stay_apart():
    chunks = [ToolCallDelta("a", "ls", '{"x'), ToolCallDelta("a", None, '":1}'), ToolCallDelta("b", "ls", "{}")]
    assert rechunk(chunks, 4) == [
        ToolCallDelta("a", "ls", '{"x"'),
        ToolCallDelta("a", None, ":1}"),
        ToolCallDelta("b", "ls", "{}"),
    ]


def test_a_signature_stays_at_the_end_of_what_it_signs():
    chunks = [ReasoningDelta("ab"), ReasoningDelta("", "one"), ReasoningDelta("cd"), ReasoningDelta("", "two")]
    assert rechunk(chunks, 1) == [
        ReasoningDelta("a"),
        ReasoningDelta("b", "one"),
        ReasoningDelta("c"),
        ReasoningDelta("d", "two"),
    ]


def test_a_delta_without_text_is_kept():
    assert rechunk([ToolCallDelta("a", "ls", ""), ReasoningDelta("", "s")], 5) == [
        ToolCallDelta("a", "ls", ""),
        ReasoningDelta("", "s"),
    ]


@given(text=st.text(), sizes=SIZES)
def test_no_code_point_is_lost_or_moved(text: str, sizes: list[int]):
    assert "".join(cut(text, sizes)) == text


@given(chunks=st.lists(DELTAS), sizes=SIZES)
def test_the_stream_stays_the_same_but_for_the_cuts(chunks: list[Chunk], sizes: list[int]):
    assert joined(rechunk(chunks, sizes)) == joined(chunks)
