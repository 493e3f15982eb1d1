"""The commands of git, as far as they start other programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from monitor.tools.approvals.known_commands import is_proven
from monitor.tools.approvals.plain_words import known_options
from monitor.tools.approvals.started.command_words import Words, after_options

_GIT: Final = known_options(
    """
    -pP -C: -c: --git-dir: --work-tree: --namespace: --exec-path= --config-env: --paginate --no-pager
    --bare --no-replace-objects --literal-pathspecs --glob-pathspecs --noglob-pathspecs
    --icase-pathspecs --no-optional-locks --html-path --man-path --info-path --version --help
    --super-prefix: --attr-source: --no-lazy-fetch --no-advice
    """
)
_GIT_VERBS: Final = """
    add am annotate apply archive bisect blame branch bundle cat-file check-attr check-ignore check-mailmap
    check-ref-format checkout checkout-index cherry cherry-pick clean clone column commit commit-graph commit-tree
    config count-objects credential describe diff diff-files diff-index diff-tree difftool fast-export fast-import
    fetch fetch-pack filter-branch for-each-ref format-patch fsck gc grep hash-object help index-pack init
    interpret-trailers log ls-files ls-remote ls-tree mailinfo maintenance merge merge-base merge-file merge-tree
    mergetool mktag mktree multi-pack-index mv name-rev notes pack-objects pack-refs patch-id prune pull push
    range-diff read-tree rebase reflog remote repack replace request-pull rerere reset restore rev-list rev-parse
    revert rm send-email send-pack shortlog show show-branch show-index show-ref sparse-checkout stage stash
    status stripspace submodule switch symbolic-ref tag unpack-file unpack-objects update-index update-ref var
    verify-commit verify-pack verify-tag version whatchanged worktree write-tree
"""
"""Commands of git itself, which no alias can replace."""
_GIT_RUNS: Final[Mapping[str, frozenset[str]]] = {
    **dict.fromkeys(
        ("filter-branch", "difftool", "mergetool", "send-email", "config", "credential", "send-pack"), frozenset({""})
    ),
    "bisect": frozenset({"run"}),
    "submodule": frozenset({"foreach"}),
}
"""Commands of git that run other programs, with the words that make them do so (`""`: always)."""
_STARTS: Final = (
    *("--exec", "--upload-pack", "--receive-pack", "--open-files-in-pager", "--extcmd", "--ext-diff", "--config"),
    *("--template", "--textconv", "--tool", "--gpg-sign"),
)
"""Options of commands of git whose value is a program, or says which one runs."""
_LETTERS: Final = {"grep": "O", "clone": "cu", "rebase": "x", "diff": "O", "log": "O"}
"""Such options of one letter, which may be joined with others: `git grep -lOless`."""
_LEAST: Final = 3
"""The least characters of an abbreviated option: two dashes and a letter."""


def git_command(words: Words) -> tuple[Words, bool]:
    """A command of git without the options before its verb, and whether it surely starts no other
    program. The words are empty where git's own options cannot be read, or nothing follows them.
    """
    rest = after_options(words, _GIT)
    if rest is None:
        return (), False
    if any(word.text.startswith(("-c", "--config-env", "--exec-path")) for word in words[1 : len(words) - len(rest)]):
        return rest, False
    return rest, not rest or _is_certain(words, rest)


def _is_certain(words: Words, rest: Words) -> bool:
    verb = rest[0].text
    texts = [word.text for word in rest[1:]]
    if not rest[0].literal or verb not in _GIT_VERBS.split():
        return False
    if verb in _GIT_RUNS and _GIT_RUNS[verb].intersection(["", *texts]):
        return False
    if is_proven(words):
        return True
    return not any("::" in text or _starts_a_program(verb, text) for text in texts)


def _starts_a_program(verb: str, text: str) -> bool:
    if text.startswith("--"):
        name = text.partition("=")[0]
        return len(name) >= _LEAST and any(one.startswith(name) for one in _STARTS)
    return text.startswith("-") and not set(_LETTERS.get(verb, "")).isdisjoint(text)
