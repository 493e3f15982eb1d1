"""The bar that is shown while transcripts are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import PurePath

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn

from monitor.cli.render import output

BAR_CHARS = 16
BESIDE_CHARS = 62
"""The length of the bar, the counts and the time. The name of the file has the rest of a line."""


class _PolledProgress(Progress):
    """A bar that asks `done` how many bytes were read, whenever it is drawn."""

    def __init__(self, *columns: ProgressColumn, console: Console, done: Callable[[], int]) -> None:
        self._read = done
        # Results that are printed meanwhile belong to stdout and must not be drawn above the bar.
        super().__init__(*columns, console=console, transient=True, redirect_stdout=False)

    def get_renderables(self) -> Iterable[RenderableType]:
        for task in self.tasks:
            self.update(task.id, completed=self._read())
        return super().get_renderables()


@contextmanager
def progress(
    console: Console, total: int, done: Callable[[], int], *, quiet: bool
) -> Iterator[Callable[[int, int, str], None]]:
    """A bar on a terminal, and nothing elsewhere. `total`: the bytes to read. `done`: answers how
    many of them were read. `quiet`: no bar, because results are written to the terminal. The
    function that is yielded takes the runs, those with a loop, and the file that was read last.
    """
    if quiet or not console.is_terminal:
        yield lambda *_: None
        return
    columns = (
        BarColumn(BAR_CHARS, pulse_style="cyan"),
        TextColumn("{task.fields[runs]:,} runs, {task.fields[loops]:,} with a loop"),
        TimeRemainingColumn(elapsed_when_finished=True),
        TextColumn("left"),
        TextColumn("{task.fields[file]}", style="dim"),
    )
    with _PolledProgress(*columns, console=console, done=done) as bar:
        task = bar.add_task("", total=total or None, runs=0, loops=0, file="")

        def tick(runs: int, loops: int, file: str) -> None:
            bar.update(task, runs=runs, loops=loops, file=_shortened(file, console.width))

        yield tick


def _shortened(file: str, width: int) -> str:
    """The name of the file, as far as the line has room."""
    room = width - BESIDE_CHARS
    name = output.on_one_line(PurePath(file).name)
    if room < 2:  # noqa: PLR2004 - a letter and the sign that more follows
        return ""
    return name if len(name) <= room else f"{name[: room - 1]}\u2026"
