"""A fact about each row, as a column of a table and as a field of JSON."""

from __future__ import annotations

import io

from rich.console import Console

from monitor.cli.render import table

ROWS = table.RowKind[tuple[str, int]](
    table.Fact("name", "who", lambda row: row[0]),
    table.Fact("chars", None, lambda row: len(row[0])),
    table.Fact(None, table.Column("shouted", right=True), lambda row: row[0].upper()),
    table.Fact("share", "of all", lambda row: row[1] / 4, "{:.0%}".format),
)


def test_json_has_the_values_of_the_facts_that_have_a_field():
    assert ROWS.as_json(("ada", 1)) == {"name": "ada", "chars": 3, "share": 0.25}


def test_a_table_has_the_texts_of_the_facts_that_have_a_column():
    console = Console(file=io.StringIO(), width=100)
    ROWS.show(console, [("ada", 1), ("grace", 3)])
    assert isinstance(console.file, io.StringIO)
    assert [line.split() for line in console.file.getvalue().splitlines()] == [
        ["who", "shouted", "of", "all"],
        ["ada", "ADA", "25%"],
        ["grace", "GRACE", "75%"],
    ]
