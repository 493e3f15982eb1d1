"""More of both kinds, in the formats of other trades: what an outsider wrote who did not know the
rules. The words are those of `bench.structure_kinds`.
"""

from __future__ import annotations

import itertools

from bench.structure_kinds import Loop, Rng, Wording, block, counted, digits, filled, five, plan, rows
from bench.structure_quiet_kinds import Make, same
from bench.structure_quiet_kinds import rows as listing

TAMIL, KHMER = map(digits, "\u0be6\u17e0")


def short(unit: str) -> Loop:
    """Short lines need twelve copies and 768 characters."""
    return Loop(unit=unit, rounds=(26, 40))


def dozen(unit: str) -> Loop:
    """Blocks of markup that is no list: the same."""
    return Loop(unit=unit, rounds=(13, 18))


def long(unit: str) -> Loop:
    """A text of thousands of characters, word for word."""
    return Loop(unit=unit * 2, rounds=(14, 18))


PARAGRAPH = "{s} {s} {s} {s} {s} {s} {s} {s} {s} {s}\n\n"
LOOPS: dict[str, Loop] = {
    "whole answer": long(PARAGRAPH * 4),
    "whole report": long("# {Kind} {noun}\n\n" + PARAGRAPH * 2 + "## {Noun}\n\n- {s}\n- {s}\n\n" + PARAGRAPH * 2),
    "whole file": long(
        "```python\n" + 'def {noun}_{d}(value):\n    """{s}"""\n    return {noun}(value, {n})\n\n\n' * 12 + "```\n\n"
    ),
    "whole table": long("| {Noun} | {Kind} |\n|---|---|\n" + "| {noun} of {place} | {n} |\n" * 30 + "\n"),
    "whole Chinese answer": long("{zh}，{kind}。\n{zh}：{noun}{n}。\n\n" * 20),
    "YAML document": block("---\nkind: {Noun}\nname: {noun}-{kind}\nport: {n}\nselector:\n  app: {noun}\n"),
    "LaTeX equation": dozen("\\begin{{equation}}\n{noun}_{{i}} = \\sum_{{j}} {noun}_{{ij}} x_j\n\\end{{equation}}\n\n"),
    "XML element": dozen('<entry key="{noun}">\n  <{noun}>{s}</{noun}>\n</entry>\n'),
    "diff hunk": block("--- a/{noun}.py\n+++ b/{noun}.py\n-    {noun} = {d}\n+    {noun} = {n}\n     return {noun}\n"),
    "mermaid": block("```mermaid\ngraph TD\n  {noun} --> {noun}\n  {kind} --> {noun}\n```\n"),
    "question and answer": block("**Q:** Who {verb} the {kind} {noun}?\n**A:** {s}\n\n"),
    "three speakers": five("{one}: {s}\n{two}: {s}\n{name}: {s}\n"),
    "quote in a quote": dozen("> > {s}\n> {s}\n\n"),
    "SQL query": short("SELECT {noun}, {noun} FROM {noun} WHERE {kind} = {n};\n"),
    "shell line": short("$ cat {noun}/{kind}.log | grep {noun}\n"),
    "emoji line": short("\U0001f680 {verb} the {kind} {noun} \U0001f389\n"),
    "hex line": short("{hex} {hex} {hex} {hex}\n"),
    "JSON call": short('{{"tool": "{tool}", "input": {{"path": "/srv/{noun}/{kind}.py"}}}}\n'),
    "apology": short("I apologize for the {kind} {noun}. Let me try that again.\n\n"),
    "second thoughts": five("Wait, actually, {s} Hmm, no, {s} "),
    "word": Loop(unit="{noun} ", rounds=(60, 100)),
    "and then": Loop(unit="... and then the {noun} ", rounds=(40, 60)),
    "smiley": Loop(unit="\U0001f602", rounds=(300, 500)),
    "family": Loop(unit="\U0001f469\u200d\U0001f469\u200d\U0001f467 ", rounds=(90, 140)),
    "one sign": Loop(unit="0", rounds=(800, 1500)),
    "line breaks": Loop(unit="\n", rounds=(900, 1500)),
    "tag": Loop(unit="<br/>", rounds=(150, 300)),
    "Tamil digits": counted("@) {hi}\n", TAMIL),
    "Khmer digits": counted("{step} @: {s}\n", KHMER),
    "hexadecimal": counted("{step} 0x@: {s}\n", lambda number: f"{number:04x}"),
    "ordinal": counted("For the @th time, {s} "),
    "attempt in Chinese": counted("尝试@：{zh}。\n"),
    "times in Japanese": counted("{ja}（@回目）\n"),
    "attempt in Arabic": counted("المحاولة رقم @: {ar}\n", digits("\u0660")),
    "attempt in Bengali": counted("চেষ্টা @: {bn}\n", digits("\u09e6")),
    "messages of users": counted("User@: {s}\n"),
    "Kubernetes": plan("---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {noun}-@\ndata:\n  mode: {kind}\n"),
    "slides": plan("--- Slide @ ---\nTitle: {Kind} {noun}\n* {s}\n\n"),
    "one file for ever": plan("Attempt @:\n```go\nfunc {noun}() error {{\n\treturn {verb}()\n}}\n```\n"),
    "footnotes": rows("[^@]: {s}\n", 140),
    "list items": rows('<li id="row-@">{s}</li>\n', 140),
    "LaTeX items": rows("\\item[@.] {s}\n", 140),
    "padded ids": rows("[task-00@] {s}\n", 140),
}  # fmt: skip


def villanelle(rng: Rng, words: Wording) -> str:
    first, second = filled(rng, words, "{s}"), filled(rng, words, "{s}")
    verses = (filled(rng, words, "{s}\n{s}\n") + (second if turn % 2 else first) + "\n\n" for turn in range(6))
    return f"{first}\n" + "".join(verses) + f"{first}\n{second}\n"


def psalm(rng: Rng, words: Wording) -> str:
    refrain = filled(rng, words, "for the {noun} of {name} endures for ever")
    return "".join(filled(rng, words, f"{number} {{s}} {refrain};\n") for number in range(1, 27))


def days_of_gifts(rng: Rng, words: Wording) -> str:
    gifts = [filled(rng, words, f"{number} {{kind}} {{noun}}s of {{place}}") for number in range(1, 13)]
    return "".join(
        f"On day {day} my true love gave to me\n" + ",\n".join(reversed(gifts[:day])) + ".\n\n" for day in range(1, 13)
    )


def moves(rng: Rng, words: Wording) -> str:
    squares = [column + row for column in "abcdefgh" for row in "12345678"]
    return " ".join(
        f"{number}. {rng.choice('NBRQK')}{rng.choice(squares)} {rng.choice(squares)}" for number in range(1, 70)
    )


def boards(rng: Rng, words: Wording) -> str:
    return "\n".join(
        f"Move {turn}\n" + "".join(" ".join(rng.choices("........rnbqkpRNBQKP", k=8)) + "\n" for _ in range(8))
        for turn in range(1, 9)
    )


def genes(rng: Rng, words: Wording) -> str:
    before, after = ("".join(rng.choices("ACGT", k=400)) for _ in range(2))
    return f">locus\n{before}{'GATA' * 12}{after}\n"


def towers(rng: Rng, words: Wording) -> str:
    said: list[str] = []

    def move(disks: int, source: str, target: str, spare: str) -> None:
        if disks:
            move(disks - 1, source, spare, target)
            said.append(f"{len(said) + 1}. Move disk {disks} from rod {source} to rod {target}.")
            move(disks - 1, spare, target, source)

    move(rng.randint(5, 6), "A", "C", "B")
    return "\n".join(said)


def pairs(rng: Rng, words: Wording) -> str:
    return "\n".join(f"{one} + {other}" for one, other in itertools.combinations(sorted(set(words.nouns))[:14], 2))


def orders(rng: Rng, words: Wording) -> str:
    return "\n".join(" ".join(one) for one in itertools.permutations(rng.sample(list(words.nouns), 4)))


def unit_matrix(rng: Rng, words: Wording) -> str:
    size = rng.randint(20, 30)
    return "\n".join(" ".join("1" if row == column else "0" for column in range(size)) for row in range(size))


def counting(rng: Rng, words: Wording) -> str:
    return "\n".join(
        "FizzBuzz" if number % 15 == 0 else "Fizz" if number % 3 == 0 else "Buzz" if number % 5 == 0 else str(number)
        for number in range(1, 101)
    )


def divided(rng: Rng, words: Wording) -> str:
    return "\n".join(f"{one * other} ÷ {other} = {one}" for one in range(1, 11) for other in range(1, 11))


def tablature(rng: Rng, words: Wording) -> str:
    return "\n\n".join(
        "\n".join(f"{string}|" + "".join(rng.choices("-----0123", k=32)) + "|" for string in "eBGDAE") for _ in range(8)
    )


QUIET: dict[str, Make] = {
    "villanelle": villanelle,
    "psalm": psalm,
    "days of gifts": days_of_gifts,
    "litany of saints": listing("Saint {name} of {place}, pray for us.\n", 25, 45),
    "moves of a game": moves,
    "boards of a game": boards,
    "genes": genes,
    "towers": towers,
    "pairs": pairs,
    "orders": orders,
    "unit matrix": unit_matrix,
    "counting game": counting,
    "divisions": divided,
    "tablature": tablature,
    "Kubernetes, deployments": listing("---\nkind: Deployment\nmetadata:\n  name: {noun}-{kind}\nspec:\n  replicas: {d}\n  template:\n    spec:\n      containers:\n        - name: {noun}\n          image: registry.example.com/{noun}:{d}.{n}\n", 5, 10),
    "SQL dump": listing("INSERT INTO `orders` VALUES ({i},'{name}','{noun}@example.com',{x},'2025-0{d}-1{d}',NULL);\n", 40, 110),
    "SQL tables": listing("CREATE TABLE {noun}_{kind} (\n  id INTEGER PRIMARY KEY,\n  {noun} TEXT NOT NULL,\n  created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP\n);\n\n", 8, 16),
    "LaTeX table": listing("{Noun} & {x} & {x} & {d}\\% \\\\\n\\hline\n", 20, 40, head="\\begin{{tabular}}{{lrrr}}\n", tail="\\end{{tabular}}\n"),
    "lemmas": listing("\\begin{{lemma}}\\label{{lem:{noun}{i}}}\n{s}\n\\end{{lemma}}\n\\begin{{proof}}\n{s} {s}\n\\end{{proof}}\n\n", 8, 14),
    "references": listing("@article{{{noun}{n},\n  author = {{{name}}},\n  title = {{The {kind} {noun}}},\n  year = {{19{d}{d}}}\n}}\n\n", 10, 18),
    "notes of music": listing("{n} On ch={d} n={n} v={d}{d}\n", 60, 140, head="MFile 1 2 480\n", tail="TrkEnd\n"),
    "hex dump": listing("{i2:>8}  {hex} {hex} {hex} {hex}  |{d}..{d}....|\n", 40, 110),
    "zero pages": listing("{i2:>8}  00 00 00 00 00 00 00 00 {d}{d} 00 00 00  |............|\n", 30, 60),
    "comma list with ids": listing("1000{i},{name},{kind} {noun},{x},EUR,{done}\n", 60, 140, head="id,name,item,price,currency,state\n"),
    "sensor": listing("2025-03-01T00:{ii}:00Z,sensor-{d},{x},{x},OK\n", 40, 59),
    "pytest with shares": listing("tests/test_{noun}.py::test_{kind}_{noun} PASSED   [ {ii}%]\n", 40, 90),
    "Go tests": listing("=== RUN   Test{Noun}{Verb}\n--- PASS: Test{Noun}{Verb} (0.{d}{d}s)\n", 20, 45),
    "TAP with words": listing("ok {i} - {kind} {noun} {verb}\n", 40, 90, head="TAP version 14\n"),
    "cargo tests": listing("test {noun}::{kind}::{noun}_{verb} ... ok\n", 40, 90),
    "JUnit cases": listing('  <testcase classname="com.example.{noun}.{Noun}Test" name="{verb}{Noun}" time="0.{d}{d}"/>\n', 30, 70),
    "clauses of a lease": listing("§ {i}. {s} The Tenant shall, at the Tenant's sole cost and expense, {verb} the {noun} within {d} days; provided, however, that nothing herein shall be construed to {verb} the {noun}.\n\n", 12, 18),
    "claims of a patent": listing("{i}. The apparatus of claim {j}, wherein the {noun} is coupled to the {noun} and configured to {verb} the {kind} {noun}.\n\n", 16, 26),
    "resolutions": listing("Recalling its resolution {n}/{d} on the {noun} of the {noun} in {place},\n\n", 14, 25),
    "git log in full": listing("commit {hex}{hex}{hex}\nAuthor: {name} <{noun}@example.com>\nDate:   Mon Nov 1{d} {time} 2025 +0000\n\n    {s}\n\n", 14, 25),
    "bumps": listing("* {hex} chore(deps): bump {noun}-{kind} from {d}.{n}.{d} to {d}.{n}.{d}\n", 25, 45),
    "circles of a drawing": listing('  <circle cx="{n}" cy="{n}" r="{d}" fill="#{hex}"/>\n', 30, 60),
    "utilities of CSS": listing(".mt-{i} {{ margin-top: {i2}px; }}\n", 40, 70),
    "rules of CSS": listing(".{noun}-{kind} {{\n  margin: 0;\n  padding: {d}px;\n  display: flex;\n}}\n\n", 15, 30),
    "checks of errors": listing('\t{noun}, err := {kind}.{Verb}(ctx)\n\tif err != nil {{\n\t\treturn nil, fmt.Errorf("{noun}: %w", err)\n\t}}\n', 12, 20),
    "no operations": same("  nop\n", 16, 24, head="  push rbp\n", tail="  ret\n"),
    "protocol": listing("  string {noun}_{kind} = {i};\n", 25, 45, head="message {Noun} {{\n", tail="}}\n"),
    "Terraform": listing('resource "aws_{noun}" "{kind}" {{\n  name = "{noun}"\n  tags = {{\n    Environment = "prod"\n  }}\n}}\n\n', 10, 18),
    "rules of a firewall": listing("-A INPUT -s 10.{d}.{d}.0/24 -p tcp -m tcp --dport {n} -j ACCEPT\n", 25, 45),
    "zone file": listing("{noun}-{n}\t3600\tIN\tA\t192.0.2.{d}\n", 30, 70),
    "ping": listing("64 bytes from 192.0.2.1: icmp_seq={i} ttl=57 time={x} ms\n", 30, 60),
    "folder": listing("-rw-r--r--  1 root  wheel  {n} Nov 1{d} {time} {noun}_{kind}.txt\n", 40, 80),
    "system calls": listing('openat(AT_FDCWD, "/usr/lib/{noun}/{kind}.so", O_RDONLY|O_CLOEXEC) = -1 ENOENT (No such file or directory)\n', 20, 35),
    "deprecations": listing("npm WARN deprecated {noun}-{kind}@{d}.{d}.{d}: This package is no longer supported.\n", 15, 30),
    "requirements": listing("Requirement already satisfied: {noun}-{kind}>={d}.{d} in /usr/lib/python3/site-packages (from {noun})\n", 15, 35),
    "objects of a build": listing("[ {ii}%] Building C object src/CMakeFiles/{noun}.dir/{kind}_{noun}.c.o\n", 25, 50),
    "warnings of a compiler": listing("src/{noun}.c:{n}:{d}: warning: unused variable '{kind}' [-Wunused-variable]\n", 20, 40),
    "errors of types": listing('{noun}/{kind}.py:{n}: error: Argument {d} to "{verb}" has incompatible type "str"; expected "int"  [arg-type]\n', 15, 35),
    "download in dots": listing("{i2}K .......... .......... .......... .......... .......... {ii}% {x}M {d}s\n", 25, 55),
    "translations without text": listing('#: src/{noun}.c:{n}\nmsgid "{s}"\nmsgstr ""\n\n', 12, 25),
    "calendar": listing("BEGIN:VEVENT\nUID:{hex}@example.com\nDTSTART:2025010{d}T090000Z\nSUMMARY:{Kind} {noun}\nEND:VEVENT\n", 10, 20),
    "feed": listing('  <item>\n    <title>{s}</title>\n    <guid isPermaLink="false">{hex}</guid>\n  </item>\n', 10, 20),
    "site map": listing("  <url>\n    <loc>https://example.com/{noun}/{kind}-{n}</loc>\n    <changefreq>weekly</changefreq>\n  </url>\n", 15, 35),
    "empty cells": listing("  <tr><td>{noun}</td><td></td><td></td><td>{d}</td></tr>\n", 20, 40),
    "key and value log": listing('ts=2025-11-01T10:00:{ii}Z level=info component={noun} msg="{verb} {noun}" duration={n}ms status=200\n', 30, 59),
    "hourly job": listing("Nov 22 10:{ii}:01 host CRON[{n}]: (root) CMD (run-parts --report /etc/cron.hourly)\n", 12, 24),
    "recursion in a debugger": listing("#{i}  0x00007f{hex} in visit (n={i}) at src/visit.c:42\n", 20, 40),
    "requests by hand": listing('GET /{noun}/{n} HTTP/1.1\nHost: example.com\nAccept: */*\n\nHTTP/1.1 200 OK\nContent-Type: application/json\n\n{{"{noun}": {n}}}\n\n', 6, 10),
    "types of a program": listing("export interface {Noun}{Verb} {{\n  id: string;\n  {noun}: number;\n  {kind}?: string | null;\n}}\n\n", 10, 18),
    "assertions of a parser": listing('    assert parse("{noun}-{n}") == ("{noun}", {n})\n', 25, 50),
    "buttons": listing('<Button variant="outlined" onClick={{handle{Verb}}}>{Kind} {noun}</Button>\n', 15, 35),
    "crochet": listing("Rnd {i}: (sc in next {j} st, inc) x 6\n", 20, 40),
    "play": listing("INT. {PLACE} - NIGHT\n\n{s}\n\n                    {NAME}\n          {s}\n\n", 8, 16),
    "advertisements": listing("Only today! {Kind} {noun}s, now {d}% off. Order now and save!\n\n", 10, 18),
    "scores": listing("{place} United {d} - {d} {place} City\n", 25, 45),
    "receipt": listing("{d} x {kind} {noun}          {x} EUR A\n", 20, 40),
    "bank": listing("1{d}.0{d}.2025  SEPA-Lastschrift  {Noun} GmbH  -{x}\n", 25, 45),
    "departures": listing("{ii}:05  Platform {d}  {place} - {place} via {place}\n", 15, 30),
}  # fmt: skip
