"""The commands in a line for a shell."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.tools.commands import command_prefixes, read_line


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("git push origin main", [["git", "push", "origin", "main"]]),
        ("cd x && git push; ls | wc -l &", [["cd", "x"], ["git", "push"], ["ls"], ["wc", "-l"]]),
        ("\"git\" pu'sh' \\-f", [["git", "push", "-f"]]),
        ('grep "a $(rm -rf x)" y', [["grep", '"a $(rm -rf x)"', "y"], ["rm", "-rf", "x"]]),
        ("echo `id` <(cat x)", [["echo", "`id`", "<(cat x)"], ["id"], ["cat", "x"]]),
        ("cat <<E\n$(id)\nE\n", [["cat"], ["id"]]),
        ("for f in *; do rm $f; done", [["rm", "$f"]]),
        ("git() { rm x; }; git status", [["rm", "x"], ["git", "status"]]),
        ("case x in x) git push;; esac", [["git", "push"]]),
        ("bash -c 'git push; ls'", [["git", "push"], ["ls"]]),
        ("bash -lc \"sh -c 'git push'\"", [["git", "push"]]),
        ("eval 'git push'", [["git", "push"]]),
        ("bash script.sh", [["bash", "script.sh"]]),
        ("ls # git push", [["ls"]]),
        ("", []),
    ],
)
def test_every_command_of_a_line_is_found_wherever_it_stands(text: str, commands: list[list[str]]):
    assert command_prefixes(text) == commands


@pytest.mark.parametrize(
    "text",
    [
        "if (",
        "$X -rf /",
        "{rm,-rf,/}",
        "$'\\x72m' x",
        'bash -c "$X"',
        "sh -c",
        "xargs $X",
        "r* x",
        "echo '",
        "ls \0",
        "a" * 20_001,
        "ls \ud800",
        "bash -c " + "'bash -c " * 9,
    ],
)
def test_what_cannot_be_read_for_sure_is_not_guessed(text: str):
    assert command_prefixes(text) is None


@pytest.mark.parametrize(
    ("text", "inner"),
    [
        ("sudo -u root rm -rf /", ("rm", "-rf", "/")),
        ("env X=1 rm x", ("rm", "x")),
        ("timeout 5 rm x", ("rm", "x")),
        ("xargs rm", ("rm",)),
        ("find . -name x -exec rm {} ;", ("rm", "{}")),
        ('timeout 5 bash -c "rm x"', ("rm", "x")),
        ("nohup sudo rm x", ("rm", "x")),
    ],
)
def test_a_command_that_runs_another_one_shows_both(text: str, inner: tuple[str, ...]):
    line = read_line(text)
    assert line is not None
    assert inner in line.commands
    assert len(line.commands) > 1


def test_what_changes_the_meaning_of_later_commands_is_a_command_of_its_own():
    assert command_prefixes("PATH=/evil git status") == [["git", "status"], ["PATH=/evil"]]
    assert ["export PATH=/evil"] in (command_prefixes("export PATH=/evil; git status") or [])


@pytest.mark.parametrize(
    ("text", "writes"),
    [
        ("ls > f", True),
        ("ls >> f", True),
        ("ls &> f", True),
        ("ls 2> f", True),
        ("echo $(ls > f)", True),
        ("bash -c 'ls > f'", True),
        ("ls 2>&1", False),
        ("ls > /dev/null 2>&1", False),
        ("cat < f", False),
        ("ls", False),
    ],
)
def test_a_redirection_into_a_file_is_seen(text: str, writes: bool):
    line = read_line(text)
    assert line is not None
    assert line.writes is writes


@given(st.text(alphabet="git push$()`'\"\\;|&<>{}\n -crm", max_size=40))
def test_any_text_is_read_or_refused(text: str):
    line = read_line(text)
    assert line is None or all(words and words[0] for words in line.commands)
