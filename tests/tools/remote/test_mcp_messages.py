"""What is nested too deeply is cut, and the rest of a message stays."""

from __future__ import annotations

import json
import random
import string

import pytest

from monitor.tools.remote.mcp_connection import MOST_DEPTH, shallow


def nested(depth: int, inside: str = "1") -> str:
    return '{"a": [' * (depth // 2) + inside + "]}" * (depth // 2)


def test_what_is_shallow_stays_as_it_is():
    rng = random.Random(27)
    for _ in range(200):
        text = "".join(rng.choices(string.printable, k=20))
        line = json.dumps({"text": text, "list": [{}, [], [[text]], {"{[": "}]\\"}]})
        assert shallow(line) == line


@pytest.mark.parametrize("depth", [MOST_DEPTH + 2, 1_000, 200_000])
def test_what_is_deeper_is_cut_and_what_stands_beside_it_stays(depth: int):
    deep = nested(depth, '"]}"')
    line = f'{{"tools": [{deep}, {nested(4)}, "]{{", {deep}], "last": 5}}'
    read = json.loads(shallow(line))
    assert read["last"] == 5
    assert read["tools"][1] == {"a": [{"a": [1]}]}
    assert read["tools"][2] == "]{"
    assert "nested too deeply" in json.dumps(read["tools"][0])


@pytest.mark.parametrize("line", ["", "}", "]" * 500, "[" * 500, '"' + '\\"' * 500, '{"a": "' + "[" * 500, "\\"])
def test_what_is_no_json_is_no_error(line: str):
    assert isinstance(shallow(line), str)
