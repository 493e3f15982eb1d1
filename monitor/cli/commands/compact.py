"""`agent-monitor compact`: a recorded conversation before and after its compaction."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Annotated, Final

import anyio
import typer
from rich.console import Console

import monitor
from monitor.cli.compacting import (
    CompactInput,
    CompactOptions,
    check_session_options,
    compacted,
    read_input,
    session_of,
    show_report,
)
from monitor.cli.compacting import as_json as report_as_json
from monitor.cli.inputs.conversation import written
from monitor.cli.options.run_options import OneJsonOption
from monitor.cli.options.session_file import complete
from monitor.cli.render import output
from monitor.cli.render.files import check_out, write_out
from monitor.cli.render.output import STDIN
from monitor.errors import ConfigError
from monitor.messages import Message, message_codec
from monitor.wires.read import NEUTRAL

NOT_COMPACTED: Final = 1


def compact(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="The conversation: JSON or JSON lines, plain or gzipped; - is stdin. Or the name of a session.",
            autocompletion=complete,
        ),
    ],
    *,
    options: CompactOptions,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write the compacted conversation here, in its own form."),
    ] = None,
    show: Annotated[
        bool, typer.Option("--show", help="Also print what stands in the place of the old messages.")
    ] = False,
    as_json: OneJsonOption = False,
) -> None:
    """Compact a recorded conversation, and show the result: tokens before and after, pinned facts,
    and the cost.

    \b
    FILE is what `agent-monitor context` reads: messages of OpenAI, Anthropic or
    Gemini, a whole request, or JSON lines. It is repaired first, and not changed.
    The name or the file of a session compacts that session: its next run goes on
    from the summary, and its messages stay in the file.

    \b
    Examples:
      agent-monitor compact request.json
      agent-monitor compact chat.json --preset claude-code --window 200000 --show
      agent-monitor compact chat.json --out shorter.json --preset pi \\
        --model google:gemini-2.5-flash
      agent-monitor compact work --window 200000
      tail -n 1 requests.jsonl | agent-monitor compact - --reason overflow --json

    \b
    Without --model no model is asked and nothing leaves the machine: headings,
    user messages, names and files make the summary. With one, its key is in the
    environment, and its progress is written to stderr. Ctrl-C writes nothing.

    \b
    Exit code: 0 compacted; 1 not, and why; 2 the file cannot be read, or an
    option, the key or a package is wrong or missing.
    """  # noqa: D301 - \b keeps the lines of an example apart
    console, complaints = output.stdout(), output.stderr()
    with output.tidy_exit():
        options.check()
        session = session_of(file)
        if session is not None:
            check_session_options(options, out)
        _check_out(out, file)
        given = read_input(file, session, options)
        try:
            done = anyio.run(compacted, given, options, session, complaints)
        except monitor.context.CompactionError as error:
            _say_why_not(error, complaints, as_json=as_json)
            raise typer.Exit(NOT_COMPACTED) from None
        if out is not None:
            _write(out, _in_its_words(given, done.result.messages))
        if as_json:
            output.write_json(report_as_json(done))
        else:
            show_report(console, done, text=show, written_to=session or out)


def _say_why_not(error: monitor.context.CompactionError, complaints: Console, *, as_json: bool) -> None:
    if as_json:
        output.write_json(
            {"ok": False, "failure": error.failure.value, "retryable": error.retryable, "detail": str(error)}
        )
    output.complain(complaints, f"agent-monitor: not compacted ({error.failure.value}): {error}")


def _check_out(out: Path | None, file: str) -> None:
    """Check the file for `--out` before a model is paid for."""
    if out is None:
        return
    check_out(out, "--out")
    if file != STDIN and out.exists() and Path(file).exists() and out.samefile(file):
        raise ConfigError(f"--out {out}: that is the conversation itself; give the compacted one another name")


def _in_its_words(given: CompactInput, messages: tuple[Message, ...]) -> str:
    form = given.conversation.form
    if form == NEUTRAL:
        return written(given.conversation, list(map(message_codec.to_dict, messages)))
    return written(given.conversation, monitor.adapters.to_form(form, messages), given.system)


def _write(out: Path, text: str) -> None:
    data = text.encode("utf-8", "replace")
    write_out(out, [gzip.compress(data, mtime=0) if out.suffix == ".gz" else data], "--out")
