"""Claude through anthropic, as a `Model`.

`to_messages` and `to_parameters` write a neutral request in the SDK's form, as plain data; they
need no SDK and send nothing. `AnthropicModel` makes the call.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from monitor._util.codec import to_plain
from monitor._util.hashing import identity
from monitor._util.part_options import REDACTED, goes_to, read_mark
from monitor.adapters.adapter import AdapterFactory
from monitor.adapters.anthropic.stream import AnthropicAdapter
from monitor.adapters.model_names import Opening, SdkModel, check_keys, check_settings, suggested
from monitor.adapters.provider_forms import answered_calls, append_turn, arguments_in, bytes_of, valid, valid_data
from monitor.chunks import ToolCall, ToolResult
from monitor.errors import ConfigError, MissingExtra, describe
from monitor.messages import AssistantMessage, Media, Message, Reasoning, Text, UserMessage
from monitor.models import ModelRequest, ToolChoice, ToolSpec
from monitor.wires.anthropic import call_of, kept_block, kept_citations, kept_use, paired
from monitor.wires.fields import Form

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic
    from anthropic.types import RawMessageStreamEvent


MAX_TOKENS: Final = 32_000
"""The API has no default for the length of an answer. This is the lowest limit among the Claude 4
models (Opus 4): less would cut long tool calls off, and more is refused by some.
"""

_CHOICES: Final[Mapping[ToolChoice, str]] = {"auto": "auto", "required": "any", "none": "none"}
_OF_THE_REQUEST: Final = {
    "model": "the model's name says it",
    "messages": "the request's messages say it",
    "system": "the request's instructions say it",
    "stream": "every answer is streamed",
}
"""Parameters of the SDK that are not allowed as settings, and why."""


class AnthropicModel(SdkModel):
    """A Claude model. Each call is one request: a client that is made here does not retry.

    `client`: an `AsyncAnthropic`, or one for Bedrock or Vertex. It keeps its own retries, and you
    close it. Without `client`, the first call of each event loop makes one from the environment
    (`ANTHROPIC_API_KEY`, or other variables of the SDK). `aclose()` closes the client of the
    running loop.

    `settings` of a request are the arguments of `messages.create`. Parameters that the installed
    SDK does not know (in recent versions `temperature`) go into `extra_body`. With `betas` among
    the settings, `beta.messages.create` is called. `max_tokens` is `MAX_TOKENS`, 32,000, plus the
    budget for thinking, unless the settings have it.
    """

    adapter: ClassVar[AdapterFactory] = AnthropicAdapter
    form: ClassVar[Form] = "anthropic"
    provider = "anthropic"
    example = "claude-sonnet-5"

    def __init__(self, model: str, *, client: Any = None) -> None:
        super().__init__(model, client)
        self._known = _known_settings()
        if client is not None and not _is_async_client(client):
            raise ConfigError(
                f"client takes an AsyncAnthropic, not {type(client).__name__}: write client=anthropic.AsyncAnthropic()"
            )

    def stream(self, request: ModelRequest) -> Awaitable[AsyncIterator[RawMessageStreamEvent]]:
        """The answer to `request`. The call is made when the result is awaited, and made again each
        time.

        Raises `ConfigError` for settings that `messages.create` does not have, and for an empty
        request.
        """
        parameters = to_parameters(request, model=self._model)
        if not parameters["messages"]:
            raise ConfigError("the request has no messages, or only empty ones")
        known = self._known["betas" in parameters]
        unknown = [str(name) for name in parameters if name not in known]
        if unknown:
            named = ", ".join(suggested(name, known) for name in unknown)
            raise ConfigError(
                f"anthropic has no such settings: {named}; what the service takes and the SDK does not know goes into"
                " extra_body"
            )
        return Opening(partial(self._open, parameters | {"model": self._model, "stream": True}))

    async def _open(self, parameters: Mapping[str, Any]) -> AsyncIterator[RawMessageStreamEvent]:
        client = self._client()
        messages: Any = client.beta.messages if "betas" in parameters else client.messages
        stream: AsyncIterator[RawMessageStreamEvent] = await messages.create(**parameters)
        return stream

    def _client_from_environment(self) -> AsyncAnthropic:
        """A client without the SDK's own retries: the supervisor decides about each attempt."""
        from anthropic import AsyncAnthropic  # noqa: PLC0415 - as above

        check_keys("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
        try:
            client = AsyncAnthropic(max_retries=0)
        except Exception as error:
            raise ConfigError(f"no Anthropic client can be made from the environment: {describe(error)}") from error
        if client.api_key is None and client.auth_token is None and getattr(client, "credentials", None) is None:
            raise ConfigError(
                "no Anthropic client can be made from the environment: set ANTHROPIC_API_KEY, or give client="
            )
        return client


# --- the SDK


def _known_settings() -> tuple[frozenset[str], frozenset[str]]:
    """The arguments of `messages.create`, and of the same under `beta`."""
    try:  # here, because the SDK is optional, and takes a second to import
        from anthropic.resources.beta.messages import AsyncMessages as BetaMessages  # noqa: PLC0415
        from anthropic.resources.messages import AsyncMessages  # noqa: PLC0415
    except ImportError as error:
        if (error.name or "").startswith("anthropic"):
            raise MissingExtra("anthropic", "anthropic") from None
        raise
    plain, beta = (
        frozenset(inspect.signature(one.create).parameters) - {"self"} for one in (AsyncMessages, BetaMessages)
    )
    return plain, beta


def _is_async_client(client: object) -> bool:
    """Whether `client` is asynchronous. The SDK's synchronous clients have the same methods, but no
    `__aenter__`.
    """
    return callable(getattr(getattr(client, "messages", None), "create", None)) and (
        hasattr(client, "__aenter__") or not hasattr(client, "__enter__")
    )


# --- the request


def to_parameters(request: ModelRequest, *, model: str | None = None) -> dict[str, Any]:
    """Messages, instructions, tools, tool choice and settings as arguments of `messages.create`.

    The setting `tools` (server-side tools) is added to the request's tools. The setting
    `tool_choice` may only have `disable_parallel_tool_use`. If a history has calls and the request
    has no tools, the called tools are still declared, because the service requires it. They must
    not be called.

    Raises `ConfigError` for an unknown setting. Raises it also for a required call that the service
    refuses: without tools, or while thinking is enabled.
    """
    check_settings(request, _OF_THE_REQUEST)
    thinking = request.settings.get("thinking")
    mode = thinking.get("type") if isinstance(thinking, Mapping) else None
    parameters: dict[str, Any] = {"max_tokens": MAX_TOKENS + _thinking_budget(thinking), **request.settings}
    parameters["messages"] = to_messages(request.messages, thinking=mode != "disabled", model=model)
    if request.instructions:
        parameters["system"] = valid(request.instructions)
    choice, tools = request.tool_choice, [*map(_declared, request.tools), *(parameters.get("tools") or ())]
    if choice == "required" and not request.tools:
        raise ConfigError("tool_choice is 'required', and the request has no tools")
    if choice == "required" and mode == "enabled":
        raise ConfigError(
            "tool_choice is 'required', and Anthropic cannot force a call while thinking is enabled; omit one of them"
        )
    if not tools:
        choice, tools = "none", _called(request.messages)
    parallel = _parallel(parameters.pop("tool_choice", None))
    if tools:
        parameters["tools"] = tools
        parameters["tool_choice"] = {"type": _CHOICES[choice], **({} if choice == "none" else parallel)}
    return parameters


def _called(messages: Iterable[Message]) -> list[dict[str, Any]]:
    parts = (part for message in messages if isinstance(message, AssistantMessage) for part in message.content)
    names = dict.fromkeys(part.name for part in parts if isinstance(part, ToolCall))
    return [_declared(ToolSpec(name, "Not available any more.", {})) for name in names]


def _thinking_budget(thinking: object) -> int:
    """The budget for thinking, in tokens. It counts towards `max_tokens`, which must be larger."""
    budget = thinking.get("budget_tokens") if isinstance(thinking, Mapping) else None
    return budget if isinstance(budget, int) and budget > 0 else 0


def _parallel(given: object) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping) or given.keys() - {"disable_parallel_tool_use"}:
        raise ConfigError(
            f"the setting tool_choice takes disable_parallel_tool_use only, not {given!r}; the request says the rest"
        )
    return dict(given)


def _declared(tool: ToolSpec) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "input_schema": {"type": "object", **to_plain(tool.parameters)},
    }


# --- the history


def to_messages(
    messages: Iterable[Message], *, thinking: bool = True, model: str | None = None
) -> list[dict[str, Any]]:
    """A neutral history as messages that the service takes.

    The results of a turn follow it in call order, at the head of one user message. A call without a
    result is answered by an error. A call whose arguments were cut off is sent without arguments.

    - Neighbours of one role become one message, and blank text is left out.
    - Half of a surrogate pair becomes U+FFFD.
    - An id that another provider gave, or that occurs twice, is replaced by a valid one.

    Thinking goes back as it came, in its place and with its signature. Thinking that the service
    refuses is left out: without a signature, with nothing after it, or signed by another provider
    or by another Claude than `model`. All thinking is left out where `thinking` is off.

    The service's own work goes back as it came: whole blocks, citations, the caller of a call. A
    call of the service's own without its result is left out, and so is such a result without its
    call (`paired`).

    Raises `ConfigError` for media that are no image, PDF or text, or have neither data nor address.
    """
    said: list[dict[str, Any]] = []
    ids: set[str] = set()
    messages = tuple(messages)
    served = paired(messages)
    for message in messages:
        match message:
            case UserMessage(content=content):
                append_turn(said, "user", "content", [block for one in content if (block := _shown(one)) is not None])
            case AssistantMessage():
                blocks, results = _turn(message, ids, served, thinking=thinking, model=model)
                append_turn(said, "assistant", "content", blocks)
                append_turn(said, "user", "content", results)
    return said


def _shown(one: Text | Media) -> dict[str, Any] | None:
    return _text(one.text) if isinstance(one, Text) else _media(one)


def _text(words: str) -> dict[str, Any] | None:
    """A block of text. `None`: the text is blank, which the service refuses."""
    return {"type": "text", "text": valid(words)} if words.strip() else None


_IMAGES: Final = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_PDF: Final = "application/pdf"


def _media(media: Media) -> dict[str, Any]:
    """A block of media: by its data if there is any, else by its address."""
    what = media.name or media.mime_type
    titled = {} if media.name is None else {"title": valid(media.name)}
    if media.data is None and media.uri is None:
        raise ConfigError(f"{what} has neither data nor uri")
    if media.mime_type in _IMAGES:
        return {"type": "image", "source": _source(media)}
    if media.mime_type == _PDF:
        return {"type": "document", "source": _source(media), **titled}
    if media.mime_type.startswith("text/") and media.data is not None:
        text = {"type": "text", "media_type": "text/plain", "data": valid(bytes_of(media).decode("utf-8", "replace"))}
        return {"type": "document", "source": text, **titled}
    raise ConfigError(
        f"Anthropic takes images (JPEG, PNG, GIF, WebP), PDFs, and text with its data; {what} is {media.mime_type}"
    )


def _media_or_why(media: Media) -> dict[str, Any]:
    """Media in a tool's result. If the service does not accept the media, the reason stands in its
    place: the request must not fail.
    """
    try:
        return _media(media)
    except ConfigError as error:
        return {"type": "text", "text": valid(f"(It cannot be shown: {error})")}


def _source(media: Media) -> dict[str, Any]:
    """The source of media. `uri` may also be the id of an uploaded file."""
    if media.data is not None:
        bytes_of(media)
        return {"type": "base64", "media_type": media.mime_type, "data": media.data}
    address = media.uri or ""
    return {"type": "file", "file_id": address} if address.startswith("file_") else {"type": "url", "url": address}


def _turn(
    message: AssistantMessage, ids: set[str], served: Collection[str], *, thinking: bool, model: str | None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The blocks of the model's turn, and the blocks of its results. `served`: the ids of the
    service's own calls that are sent.
    """
    use: dict[str, Any] = {}
    blocks: list[dict[str, Any]] = []
    answers: list[dict[str, Any]] = []
    results = answered_calls(message)
    for piece in message.content:
        match piece:
            case Text(text=words):
                blocks += [block] if (block := _text(words)) is not None else []
            case Reasoning() if not goes_to(piece.origin, "anthropic", model):
                pass
            case Reasoning() if (block := kept_block(piece)) is not None:
                call = call_of(block)
                blocks += [valid_data(block)] if call is None or call in served else []
            case Reasoning() if (cited := kept_citations(piece)) is not None:
                _cite(blocks, *cited)
            case Reasoning() if (fields := kept_use(piece)) is not None:
                use = valid_data(fields)
            case Reasoning() if thinking:
                blocks += [block] if (block := _thinking(piece)) is not None else []
            case ToolCall():
                call_id = _fresh_id(piece.id, ids)
                given = arguments_in(piece)
                blocks.append({"type": "tool_use", "id": call_id, "name": valid(piece.name), "input": given, **use})
                use = {}
                answers.append(_answer(call_id, next(results)[1]))
    while blocks and blocks[-1]["type"] in _THINKING:
        blocks.pop()
    return blocks, answers


def _cite(blocks: list[dict[str, Any]], citations: list[Any], chars: int) -> None:
    """Give the citations to the end of the text before them, as a block of its own. A text that has
    become shorter gets none.
    """
    if not blocks or blocks[-1]["type"] != "text" or "citations" in blocks[-1] or len(blocks[-1]["text"]) < chars:
        return
    words = blocks.pop()["text"]
    blocks += [block for part in (words[:-chars], words[-chars:]) if (block := _text(part)) is not None]
    if words[-chars:].strip():
        blocks[-1]["citations"] = valid_data(citations)


_THINKING: Final = frozenset({"thinking", "redacted_thinking"})


def _thinking(piece: Reasoning) -> dict[str, Any] | None:
    if (
        not piece.signature or read_mark(piece.signature) is not None
    ):  # a signature of another service, which this one refuses
        return None
    if piece.signature.startswith(REDACTED):
        return {"type": "redacted_thinking", "data": valid(piece.signature.removeprefix(REDACTED))}
    return {"type": "thinking", "thinking": valid(piece.text), "signature": valid(piece.signature)}


def _answer(call_id: str, result: ToolResult) -> dict[str, Any]:
    """The block of one result. The service accepts an empty result, but not an empty error."""
    answer: dict[str, Any] = {"type": "tool_result", "tool_use_id": call_id}
    if result.text.strip():
        answer["content"] = valid(result.text)
    elif result.is_error:
        answer["content"] = "It failed without a word."
    if result.media and not result.is_error:  # the service accepts only text in an error
        blocks = [*([block] if (block := _text(result.text)) is not None else []), *map(_media_or_why, result.media)]
        only_text = all(block["type"] == "text" for block in blocks)
        answer["content"] = "\n".join(block["text"] for block in blocks) if only_text else blocks
    return answer | ({"is_error": True} if result.is_error else {})


_ID: Final = re.compile(r"[a-zA-Z0-9_-]+")


def _fresh_id(given: str, ids: set[str]) -> str:
    """A valid id for the id `given`; the same in each request, whatever the history adds later."""
    wanted = given if _ID.fullmatch(given) else f"call_{identity(given)}"
    fresh, number = wanted, 2
    while fresh in ids:
        fresh, number = f"{wanted}_{number}", number + 1
    ids.add(fresh)
    return fresh
