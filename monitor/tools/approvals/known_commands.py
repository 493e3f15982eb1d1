"""The commands whose harmless options are known, as data.

A table lists what an option can do at most. Where every option of a command only reads and prints,
none is listed. Where a value is optional, it counts only if it is attached: so no further option is
taken for a value.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

from monitor.tools.approvals.plain_words import ANY, KnownOptions, PlainCommand, PlainWord, known_options
from monitor.tools.approvals.repositories import holds_repository, unproven_repository
from monitor.tools.base import CallPlace

_PRINTS: Final = re.compile(
    r"[0-9$]+(?:,[0-9$+~]+)?[pq=](?:;[0-9$]+(?:,[0-9$+~]+)?[pq=])*|/[A-Za-z0-9_ .:^$-]+/[p=d]|p|="
)
"""Scripts of sed that print lines: `1,120p`, `/def main/p`."""
_COLUMNS: Final = re.compile(
    r"(?:NR *[=!<>]=? *[0-9]+ *|/[A-Za-z0-9_ .:^$-]+/ *)?"
    r"(?:\{ *print(?: \$?[A-Z0-9]+(?:, ?\$?[A-Z0-9]+)*)? *\})?"
)
"""Programs of awk that print columns: `{print $1, $3}`, `NR==5`."""
_COUNTED: Final = re.compile(r"%[-+ #0-9.*'hlLjzt]*n")
"""`%n` of bash's `printf` sets a variable."""
_SIGNATURE: Final = re.compile(r"%[-+ ]?G")
_ORDER: Final = re.compile(r"-?(?:v(?:ersion)?:)?(?:refname|creatordate|taggerdate|committerdate)")


_OF_TESTS: Final = frozenset(
    {"--nocapture", "--no-capture", "--exact", "--ignored", "--include-ignored", "--show-output"}
)
"""Options of a test program of Rust that write nothing."""
_OF_SUBSTITUTION: Final = 4
"""The parts of `s/a/b/g`."""
_FLAGS: Final = frozenset("giI0123456789")
_UNARY: Final = frozenset("-" + letter for letter in "abcdefghkLnNoOpGrsStuwxz")
_BINARY: Final = frozenset({"-nt", "-ot", "-ef", "-eq", "-ne", "-lt", "-le", "-gt", "-ge"})


def _sed(operands: Sequence[PlainWord]) -> str | None:
    script = operands[0].text if operands and operands[0].literal else ""
    if _PRINTS.fullmatch(script) or _substitutes(script):
        return None
    return "the script of sed may write a file or run a program"


def _substitutes(script: str) -> bool:
    """Whether a script of sed only replaces text in what it prints: `s/a/b/g`."""
    parts = script.split(script[1:2] or " ")
    return parts[0] == "s" and len(parts) == _OF_SUBSTITUTION and not set(parts[3]) - _FLAGS and "\\" not in script


def _awk(operands: Sequence[PlainWord]) -> str | None:
    script = operands[0].text if operands and operands[0].literal else ""
    if any(word.text.startswith("/inet") for word in operands):
        return "awk reads /inet from the network"
    if script and _COLUMNS.fullmatch(script):
        return None
    return "the program of awk may write a file or run a program"


def _printf(words: Sequence[PlainWord]) -> str | None:
    first = words[0] if words else PlainWord("")
    if not first.literal or first.text.startswith("-") or _COUNTED.search(first.text.replace("%%", "")):
        return "printf may set a variable"
    return None


def _test(words: Sequence[PlainWord]) -> str | None:
    for word in words:
        if word.glob or (word.text.startswith("-") and word.text not in _UNARY and word.text not in _BINARY):
            return f"{word.text} of test may evaluate a text"
    return None


def _date(operands: Sequence[PlainWord]) -> str | None:
    if all(word.literal and word.text.startswith("+") for word in operands):
        return None
    return "date may set the clock"


def _rust(operands: Sequence[PlainWord]) -> str | None:
    for word in operands:
        text = word.text
        if text.startswith("-") and text not in _OF_TESTS and not text.startswith("--test-threads="):
            return f"the option {text} is not known to be harmless"
    return None


def _unsigned(form: str) -> bool:
    """Whether git can write a commit in this form without gpg."""
    return _SIGNATURE.search(form) is None


def _unsigned_order(key: str) -> bool:
    """Whether git can sort by this key without gpg, which `signature` needs."""
    return _ORDER.fullmatch(key) is not None


def _no_plugin(name: str) -> bool:
    """Whether pytest leaves a plugin out, and loads none."""
    return name.startswith("no:")


_DIFFS: Final = """
        -puszwbRalMCBqW -U: -S: -G: --stat= --numstat --shortstat --dirstat= --summary --name-only --name-status
        --cached --staged --patch --no-patch --raw --patch-with-stat --word-diff= --color= --no-color
        --no-ext-diff --no-textconv --no-renames --find-renames= --find-copies= --check --exit-code --quiet
        --binary --full-index --minimal --patience --histogram --ignore-all-space --ignore-space-change
        --ignore-blank-lines --diff-filter: --unified: --relative= --merge-base --color-words= --color-moved=
        --inter-hunk-context: --abbrev= --pickaxe-all --pickaxe-regex --function-context --compact-summary --text
        --no-prefix
    """
_LOGS: Final = f"""
        {_DIFFS} -# -niEFgcm -n: -L: --oneline --graph --all --decorate= --author: --committer: --grep: --since:
        --after: --until: --before: --format= --pretty= --abbrev-commit --no-abbrev-commit --first-parent --merges
        --no-merges --follow --reverse --max-count: --skip: --date: --branches= --tags= --remotes= --topo-order
        --date-order --author-date-order --no-decorate --source --walk-reflogs --left-right --cherry-pick
        --cherry-mark --full-history --simplify-by-decoration --ancestry-path= --parents --children --boundary
        --invert-grep --all-match --no-notes --use-mailmap --no-mailmap
    """
_PYTEST: Final = """
        -qvxslh -k: -m: -n: -r: -p: --maxfail: --tb: --lf --ff --nf --sw --last-failed --failed-first --new-first
        --stepwise --co --collect-only --durations: --durations-min: --no-header --no-summary --disable-warnings
        --capture: --color: --showlocals --strict-markers --strict-config --setup-show --timeout: --no-cov --cov=
        --verbose --quiet --exitfirst --ignore: --ignore-glob: --deselect: --dist: --numprocesses: --runxfail
        --fixtures --markers --reruns: --version
    """
_JOBS: Final = """
        -q -v -j: --release --all --workspace --all-features --no-default-features --lib --bins --tests --doc
    """
_PREFIXES: Final = (("python", "-m", "pytest"), ("python3", "-m", "pytest"), ("uv", "run", "pytest"))


_VALUES: Final = {**dict.fromkeys(("--format", "--pretty", "--group"), _unsigned), "--sort": _unsigned_order}


def _git(spec: str, **options: Any) -> KnownOptions:
    return known_options(spec, **{"repository": "read", "values": _VALUES, **options})


_READERS: Final = """
    ls cat head tail wc cut tr nl basename dirname realpath readlink stat du df echo pwd true false : whoami id
    uname cmp comm paste rev tac fold md5sum sha1sum sha256sum sha512sum cksum seq sleep nproc groups printenv od
"""
"""None of their options writes a file or runs a program."""
_PYTEST_OPTIONS: Final = known_options(_PYTEST, inside=True, runs=True, values={"-p": _no_plugin}, argument_files=True)
KNOWN_COMMANDS: Final[Mapping[tuple[str, ...], KnownOptions]] = {
    **{(name,): known_options("", every=True) for name in _READERS.split()},
    **{(name,): known_options("", every=True, reads_below="-r -R --recursive --dereference-recursive -d --directories")
       for name in ("grep", "egrep", "fgrep")},
    ("cd",): known_options("-LP", most=1),
    ("printf",): known_options("", every=True, check=_printf),
    ("test",): known_options("", every=True, check=_test),
    ("which",): known_options("-a"),
    ("type",): known_options("-at"),
    ("command", "-v"): known_options(""),
    ("date",): known_options("-uIR -d: --date: --utc --iso-8601= --rfc-3339:", check=_date),
    ("file",): known_options("-biLhkN0 --brief --mime --mime-type --mime-encoding --dereference"),
    ("uniq",): known_options("-cdDiuz -f: -s: -w: --count --repeated --ignore-case --unique", most=1),
    ("sort",): known_options("""
        -bdfgiMhnRrVcCmsuz -k: -t: -S: --ignore-leading-blanks --dictionary-order --ignore-case
        --general-numeric-sort --month-sort --human-numeric-sort --numeric-sort --random-sort --reverse
        --version-sort --check= --merge --stable --unique --zero-terminated --key: --field-separator:
        --buffer-size: --parallel:
    """),
    ("diff",): known_options("""
        -qrsuNbBwiaEZyTtdepc -U: -C: -x: -I: -W: --brief --recursive --report-identical-files --unified=
        --context= --side-by-side --ignore-all-space --ignore-space-change --ignore-blank-lines --ignore-case
        --new-file --text --exclude: --color= --suppress-common-lines --width: --minimal --speed-large-files
        --strip-trailing-cr
    """, reads_below="-r --recursive"),
    ("tree",): known_options("""
        -adfilpshugDFqNQCnvtrUJX -L: -I: -P: --noreport --dirsfirst --gitignore --prune --du --si --matchdirs
        --filelimit:
    """, apart=True),
    ("rg",): known_options("""
        -nNilLcvwxFHhSsUuaPIpq0ob -e: -g: -t: -T: -A: -B: -C: -m: -M: -d: -j: -E: -f: -r: --hidden --no-ignore
        --files --type: --type-not: --glob: --iglob: --json --count --count-matches --files-with-matches
        --files-without-match --sort: --sortr: --ignore-case --smart-case --case-sensitive --fixed-strings
        --word-regexp --line-number --no-line-number --no-heading --heading --max-count: --max-depth: --multiline
        --only-matching --context: --after-context: --before-context: --color: --no-messages --stats --replace:
        --vimgrep --column --pcre2 --type-list --null --invert-match --line-regexp --max-filesize: --trim
        --regexp: --no-filename --with-filename --max-columns: --no-config --threads:
    """, reads_below=""),
    ("jq",): known_options("""
        -rcnesSaCMj --raw-output --compact-output --null-input --exit-status --slurp --sort-keys --ascii-output
        --tab --indent: --join-output --color-output --monochrome-output
    """),
    ("sed",): known_options("-nErsuz --quiet --silent --regexp-extended --separate --null-data", check=_sed),
    ("awk",): known_options("-F:", check=_awk),
    ("find",): known_options("""
        -H -L -P -name: -iname: -path: -ipath: -wholename: -type: -xtype: -maxdepth: -mindepth: -size: -mtime:
        -mmin: -atime: -amin: -ctime: -cmin: -newer: -newermt: -print -print0 -not -o -or -a -and -empty -prune
        -regex: -iregex: -regextype: -perm: -user: -group: -ls -quit -depth -xdev -mount -follow -readable
        -writable -executable -links: -inum: -samefile: -nouser -nogroup -true -false -daystart -noleaf -printf:
    """, single=True),
    ("mkdir",): known_options("-pv -m: --parents --verbose --mode:", inside=True, runs=True),
    ("touch",): known_options("-acm --no-create", inside=True, runs=True),
    ("git", "status"): _git("""
        -sbuvz --short --branch --porcelain= --long --verbose --untracked-files= --ignored= --renames --no-renames
        --ahead-behind --no-ahead-behind --show-stash --ignore-submodules= --column=
    """),
    ("git", "diff"): _git(_DIFFS, reads_below=""),
    ("git", "log"): _git(_LOGS, reads_below="-p -u --patch"),
    ("git", "show"): _git(_LOGS),
    ("git", "shortlog"): _git("""
        -nse --numbered --summary --email --since: --until: --author: --all --group= --no-merges
    """),
    ("git", "reflog"): _git("-# -n: --all --date: --format= --pretty=", most=0),
    ("git", "branch"): _git("-avr --all --remotes --show-current --verbose --no-color --color=", most=0),
    ("git", "tag"): _git("-n= --sort: --color=", most=0),
    ("git", "remote"): _git("-v --verbose", most=0),
    ("git", "stash", "list"): _git(_LOGS),
    ("git", "rev-parse"): _git("""
        -q --show-toplevel --abbrev-ref= --short= --verify --git-dir --is-inside-work-tree --symbolic
        --symbolic-full-name --show-prefix --show-cdup --absolute-git-dir --is-bare-repository --git-common-dir
        --quiet --all --branches= --tags= --remotes=
    """),
    ("git", "rev-list"): _git("""
        -# -n: --count --all --max-count: --left-right --first-parent --no-merges --merges --reverse --since:
        --until: --author: --grep: --oneline --abbrev-commit --objects
    """),
    ("git", "ls-files"): _git("""
        -cdmoiskutvz --cached --deleted --modified --others --ignored --stage --unmerged --exclude-standard
        --error-unmatch --full-name --exclude: --directory
    """),
    ("git", "ls-tree"): _git("""
        -rdtlz --name-only --name-status --full-tree --full-name --long --abbrev=
    """),
    ("git", "blame"): _git("""
        -lsetwfnpcb -L: -C= -M= --porcelain --line-porcelain --show-email --show-name --show-number --since:
        --date: --abbrev=
    """),
    ("git", "describe"): _git("""
        --tags --all --always --long --dirty= --abbrev= --match: --exact-match --contains --first-parent
    """),
    ("git", "grep"): _git("""
        -nilLcvwhHEFGPqIaWp -e: -A: -B: -C: -m: --line-number --ignore-case --files-with-matches --count
        --word-regexp --fixed-strings --extended-regexp --perl-regexp --cached --untracked --no-index --and --or
        --not --heading --break --column --show-function --only-matching --name-only
    """, reads_below=""),
    ("git", "merge-base"): _git("-a --all --is-ancestor --fork-point --octopus --independent"),
    ("git", "show-ref"): _git("-qsd --head --heads --tags --verify --hash= --abbrev= --quiet"),
    ("git", "cat-file"): _git("-tpse --batch-check=", most=2),
    ("git", "add"): _git("""
        -AunvN --all --update --dry-run --verbose --intent-to-add --ignore-errors --no-all
    """, runs=True, adds=True),
    ("git", "commit"): _git("""
        -aqvsn -m: --message: --amend --no-edit --all --quiet --verbose --signoff --allow-empty --dry-run
        --author: --date: --short --porcelain --no-verify
    """, repository="commit", runs=True),
    ("pytest",): _PYTEST_OPTIONS,
    ("py.test",): _PYTEST_OPTIONS,
    **dict.fromkeys(_PREFIXES, _PYTEST_OPTIONS),
    **{(*npm, "test"): known_options("-s --silent", most=0, runs=True) for npm in (("npm",), ("pnpm",), ("yarn",))},
    ("cargo", "test"): known_options(f"{_JOBS} -p: --no-run --features: --test: --bin: --package: --quiet --verbose",
                                      runs=True, check=_rust),
    ("cargo", "check"): known_options(f"{_JOBS} -p: --features: --all-targets --package: --quiet --verbose",
                                      runs=True, check=_rust),
    ("cargo", "build"): known_options(f"{_JOBS} -p: --features: --all-targets --package: --quiet --verbose",
                                      runs=True, check=_rust),
    ("go", "test"): known_options("""
        -v -run: -count: -race -short -timeout: -cover -bench: -failfast -parallel:
    """, single=True, inside=True, runs=True),
    ("go", "vet"): known_options("", single=True, inside=True, runs=True),
    ("go", "build"): known_options("-v -race", single=True, inside=True, runs=True),
    ("ruff", "check"): known_options("""
        -qve --select: --ignore: --output-format: --statistics --no-cache --diff --quiet --extend-select:
        --exit-zero --preview --line-length: --target-version:
    """, inside=True, runs=True, argument_files=True),
    ("ruff", "format", "--check"): known_options("-q --diff --quiet --no-cache --line-length:",
                                                  inside=True, runs=True, argument_files=True),
}  # fmt: skip
"""The rules by the words that name a command. More words are a closer name."""


def table_of(words: Sequence[PlainWord]) -> tuple[int, KnownOptions] | None:
    """The table of a command, and how many of its words name it. `None`: there is none."""
    for count in (3, 2, 1):
        named = tuple(word.text for word in words[:count] if word.literal)
        if len(named) == count and (table := KNOWN_COMMANDS.get(named)) is not None:
            return count, table
    return None


def is_proven(words: Sequence[PlainWord]) -> bool:
    """Whether a table says that a command does no more than its name says."""
    found = table_of(words)
    return found is not None and found[1].unproven(words[found[0] :]) is None


# --------------------------------------------------------------------------------------------------
# Whether a plain command is proven to do no more than the rule that allows it says.

BUILTINS: Final = frozenset({"cd", "echo", "printf", "test", "pwd", "true", "false", ":", "type", "command"})
"""Commands that bash carries out itself."""
Directories = tuple[Path | None, ...]
"""The folders in which a command may begin. `None`: one that is not known."""
_MOST_DIRECTORIES: Final = 64
_MOST_NAMES: Final = 1_000
"""The most names that a glob is compared with."""


def unproven(
    command: PlainCommand, prefix: Sequence[str], options: Sequence[str], place: CallPlace, directories: Directories
) -> str | None:
    """Why a command that begins with `prefix` may do more than that says. `None`: it is proven.

    `options`: the options that the rule names itself.
    """
    words = command.words
    if ANY in options:
        return None if all(word.known for word in words) else "a word is only known when the command runs"
    found = table_of(words)
    if found is None and not options:
        if len(words) == len(prefix) and all(word.literal for word in words):
            return None
        return f"of {words[0].text} no options are known, so the rule allows its exact words: name others in options"
    count, table = found if found is not None else (len(prefix), known_options(""))
    table = table.with_options(options)
    rest = words[count:]
    why = table.unproven(rest)
    if why is not None and len(prefix) > count:
        rest = words[len(prefix) :]  # the author of the rule has written the words before
        why = table.unproven(rest)
    if why is not None:
        return why
    if (table.inside or table.repository) and not all(directories):
        return "the folder in which it runs is not known"
    known = [directory for directory in directories if directory is not None]
    if table.inside and (outer := _outside(table.operands(rest), place.root, known)) is not None:
        return f"{outer} is outside of the workspace"
    if table.repository:
        for directory in known:
            if (why := unproven_repository(directory, table.repository)) is not None:
                return why
    if table.adds:
        added = [word for word in rest if not _is_file(word, known)]
        for directory in known if added else ():
            if holds_repository(directory):
                return "the settings of a repository that it adds may run a program"
    return None if table.runs or words[0].text in BUILTINS else _program(words[0], place)


def in_directories(commands: Sequence[PlainCommand], start: Path) -> list[tuple[PlainCommand, Directories]]:
    """Each command with the folders in which it may begin: `cd` moves the commands after it."""
    made: list[tuple[PlainCommand, Directories]] = []
    now: Directories = (start,)
    seen: Directories = (start,)
    for command in commands:
        if command.after != "&&":
            now = seen  # a cd before it may have failed
        made.append((command, now))
        if not command.piped and command.texts[0] in {"cd", "pushd", "popd"}:
            now = _moved(command, now)
            seen = tuple(dict.fromkeys((*seen, *now)))
    return made


def _moved(command: PlainCommand, now: Directories) -> Directories:
    operands = [word for word in command.words[1:] if word.text not in {"--", "-L", "-P"}]
    if command.texts[0] != "cd" or len(operands) != 1 or operands[0].glob or operands[0].text.startswith("-"):
        return (None,)
    text = os.path.expanduser(operands[0].text) if operands[0].home else operands[0].text  # noqa: PTH111 - of a text
    if not text:
        return now
    if None in now:
        return (None,)
    spelt = [os.path.normpath(one / text) for one in now if one is not None]  # bash goes up the path as it is spelt
    real = [os.path.realpath(one / text) for one in now if one is not None]
    moved = dict.fromkeys((*spelt, *real))
    return tuple(Path(one) for one in moved) if len(moved) <= _MOST_DIRECTORIES else (None,)


def _outside(operands: Sequence[PlainWord], root: Path, directories: Sequence[Path]) -> str | None:
    """The first operand, or the folder, that lies outside of `root`."""
    for directory in directories:
        for word in (PlainWord("."), *operands):
            for text in _names(word, directory):
                if not Path(os.path.realpath(directory / text.partition("::")[0])).is_relative_to(root):
                    return word.text if word.text != "." else str(directory)
    return next((word.text for word in operands if word.home), None)


def _names(word: PlainWord, directory: Path) -> Iterator[str]:
    """What bash may make of a word: itself, or the names that fit its glob. Of more than
    `_MOST_NAMES` it is the root, which is outside of every workspace.
    """
    yield word.text
    if word.glob:
        wide = "/".join(f"{part.partition('[')[0]}*" if "[" in part else part for part in word.text.split("/"))
        found = list(islice(glob.iglob(wide, root_dir=directory, include_hidden=True), _MOST_NAMES + 1))  # noqa: PTH207 - with hidden names
        yield from found if len(found) <= _MOST_NAMES else ("/",)


def _is_file(word: PlainWord, directories: Sequence[Path]) -> bool:
    """Whether the word names a file that is no folder, wherever the command begins."""
    return word.literal and all((directory / word.text).is_file() for directory in directories)


def _program(name: PlainWord, place: CallPlace) -> str | None:
    """Why the program of this name is perhaps another one than that of the system."""
    if "/" in name.text:
        return None  # the rule names this very program
    path = place.search_path if place.search_path is not None else os.environ.get("PATH", "")
    if any(not folder.startswith("/") for folder in path.split(os.pathsep)):
        return "PATH has a folder that is not absolute"
    program = shutil.which(name.text, path=path)
    if program is not None and Path(program).is_relative_to(place.root):
        return f"{program} lies in the workspace"
    return None
