"""The commands whose harmless options are known, as data.

A table lists what an option can do at most. Where every option of a command only reads and prints,
none is listed. Where a value is optional, it counts only if it is attached: so no further option is
taken for a value.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from monitor.tools.approvals.plain_words import ANY, KnownOptions, PlainCommand, PlainWord, known_options
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
_LOGS: Final = """
        -# -niEFgcm -n: --oneline --graph --all --decorate= --author: --committer: --grep: --since:
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


def _git(spec: str = "", *, boxed: str = "", **options: Any) -> KnownOptions:
    """A command of git. `spec`: its options where the environment overrules what the repository
    says. `boxed`: options that are proven in a sandbox only, because filters of the repository may
    run. Without `spec` the whole command is.
    """
    options = {"values": _VALUES, **options}
    return replace(
        known_options(f"{spec} {boxed}", **options),
        git=True,
        unboxed=known_options(spec, **options) if spec else None,
    )


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
    ("git", "status"): _git(boxed="""
        -sbuvz --short --branch --porcelain= --long --verbose --untracked-files= --ignored= --renames --no-renames
        --ahead-behind --no-ahead-behind --show-stash --ignore-submodules= --column=
    """),
    ("git", "diff"): _git(boxed=_DIFFS, reads_below=""),
    ("git", "log"): _git(_LOGS, boxed=f"{_DIFFS} -L:", reads_below="-p -u --patch"),
    ("git", "show"): _git(boxed=f"{_LOGS} {_DIFFS} -L:"),
    ("git", "shortlog"): _git("""
        -nse --numbered --summary --email --since: --until: --author: --all --group= --no-merges
    """),
    ("git", "reflog"): _git("-# -n: --all --date: --format= --pretty=", most=0),
    ("git", "branch"): _git("-avr --all --remotes --show-current --verbose --no-color --color=", most=0),
    ("git", "tag"): _git("-n= --sort: --color=", most=0),
    ("git", "remote"): _git("-v --verbose", most=0),
    ("git", "stash", "list"): _git(_LOGS, boxed=f"{_DIFFS} -L:"),
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
        -cdoiskutvz --cached --deleted --others --ignored --stage --unmerged --exclude-standard
        --error-unmatch --full-name --exclude: --directory
    """, boxed="-m --modified"),
    ("git", "ls-tree"): _git("""
        -rdtlz --name-only --name-status --full-tree --full-name --long --abbrev=
    """),
    ("git", "blame"): _git(boxed="""
        -lsetwfnpcb -L: -C= -M= --porcelain --line-porcelain --show-email --show-name --show-number --since:
        --date: --abbrev=
    """),
    ("git", "describe"): _git("""
        --tags --all --always --long --abbrev= --match: --exact-match --contains --first-parent
    """, boxed="--dirty="),
    ("git", "grep"): _git("""
        -nilLcvwhHEFGPqIaWp -e: -A: -B: -C: -m: --line-number --ignore-case --files-with-matches --count
        --word-regexp --fixed-strings --extended-regexp --perl-regexp --cached --untracked --no-index --and --or
        --not --heading --break --column --show-function --only-matching --name-only
    """, reads_below=""),
    ("git", "merge-base"): _git("-a --all --is-ancestor --fork-point --octopus --independent"),
    ("git", "show-ref"): _git("-qsd --head --heads --tags --verify --hash= --abbrev= --quiet"),
    ("git", "cat-file"): _git("-tpse --batch-check=", most=2),
    ("git", "add"): _git(boxed="""
        -AunvN --all --update --dry-run --verbose --intent-to-add --ignore-errors --no-all
    """, runs=True),
    ("git", "commit"): _git(boxed="""
        -aqvsn -m: --message: --amend --no-edit --all --quiet --verbose --signoff --allow-empty --dry-run
        --author: --date: --short --porcelain --no-verify
    """, runs=True),
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


def is_harmless(command: PlainCommand, place: CallPlace) -> bool:
    """Whether a table says that a command only reads and prints, whatever its files hold."""
    found = table_of(command.words)
    if found is None or found[1].runs:
        return False
    table = found[1] if place.boxed or not found[1].git else found[1].unboxed if place.overrules else None
    if table is None or table.unproven(command.words[found[0] :]) is not None:
        return False
    return command.words[0].text in BUILTINS or _program(command.words[0], place) is None


# --------------------------------------------------------------------------------------------------
# Whether a plain command is proven to do no more than the rule that allows it says.

_IN_BOX: Final = "a file of the repository may name a program for git: it is allowed in a sandbox only"
BUILTINS: Final = frozenset({"cd", "echo", "printf", "test", "pwd", "true", "false", ":", "type", "command"})
"""Commands that bash carries out itself."""
Directories = tuple[Path | None, ...]
"""The folders in which a command may begin. `None`: one that is not known."""
_MOST_DIRECTORIES: Final = 64
_MOST_NAMES: Final = 10_000
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
    if table.git and not place.boxed:
        if table.unboxed is None or not place.overrules:
            return _IN_BOX
        table = table.unboxed
    table = table.with_options(options)
    rest = words[count:]
    why = table.unproven(rest)
    if why is not None and len(prefix) > count:
        rest = words[len(prefix) :]  # the author of the rule has written the words before
        why = table.unproven(rest)
    if why is not None:
        return why
    if table.inside and (None in directories):
        return "the folder in which it runs is not known"
    known = [directory for directory in directories if directory is not None]
    if table.inside and (outer := _outside(table.operands(rest), place.root, known)) is not None:
        return f"{outer} is outside of the workspace"
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
        found = names_of_glob(word.text, directory)
        yield from ("/",) if found is None else found


def names_of_glob(text: str, directory: Path) -> list[str] | None:
    """The names that a glob may mean in a folder, and perhaps more: classes such as `[!a]` are read
    in other ways by other programs. `None`: it has looked at `_MOST_NAMES` and there are more.
    """
    found, looked = ["/" if text.startswith("/") else ""], 0
    for part in filter(None, text.split("/")):
        if {"*", "?", "["}.isdisjoint(part):
            found = [os.path.join(one, part) for one in found]  # noqa: PTH118 - `..` stays
            continue
        wide, above, found = f"{part.partition('[')[0]}*" if "[" in part else part, found, []
        for folder in above:
            with suppress(OSError, ValueError), os.scandir(directory / folder) as entries:
                for entry in entries:
                    looked += 1
                    if looked > _MOST_NAMES:
                        return None
                    if fnmatchcase(entry.name, wide):
                        found.append(os.path.join(folder, entry.name))  # noqa: PTH118 - as above
    return found


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
