"""Good texts that look like loops: lists, tables, listings, code, songs. Each is some head, then
rows of a template, then a tail.

Every row is filled anew; `{i}` is its number, counted from one. The words: see
`bench.structure_kinds`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from bench.structure_kinds import Rng, Wording, filled

Make: TypeAlias = Callable[[Rng, Wording], str]


@dataclass(frozen=True, kw_only=True)
class Rows:
    """A template, some times."""

    row: str
    least: int
    most: int
    head: str = ""
    tail: str = ""
    first: int = 1

    def __call__(self, rng: Rng, words: Wording) -> str:
        numbers = range(self.first, self.first + rng.randint(self.least, self.most))
        rows = "".join(
            filled(rng, words, self.row, i=i, j=i - 1, ii=f"{i:02}", iii=f"{i:03}", i2=2 * i, i7=7 * i, ii2=i * i)
            for i in numbers
        )
        return filled(rng, words, self.head) + rows + filled(rng, words, self.tail)


def rows(row: str, least: int, most: int, *, head: str = "", tail: str = "", first: int = 1) -> Make:
    return Rows(row=row, least=least, most=most, head=head, tail=tail, first=first)


def same(unit: str, least: int, most: int, *, head: str = "", tail: str = "") -> Make:
    """A unit made once and written some times, as people and programs do."""

    def make(rng: Rng, words: Wording) -> str:
        return filled(rng, words, head) + filled(rng, words, unit) * rng.randint(least, most) + filled(rng, words, tail)

    return make


def kept(row: str, least: int, most: int, *, head: str = "", keep: str = "{s}") -> Make:
    """Rows that share one sentence, made once, beside what is new in each."""

    def make(rng: Rng, words: Wording) -> str:
        shared = filled(rng, words, keep)
        return filled(rng, words, head) + "".join(
            filled(rng, words, row, i=i, shared=shared) for i in range(1, rng.randint(least, most) + 1)
        )

    return make


def times_table(sign: str, by: Callable[[int, int], int], form: str) -> Make:
    def make(rng: Rng, words: Wording) -> str:
        ones, others = range(1, rng.randint(9, 12)), range(1, rng.randint(10, 13))
        return "".join("".join(form.format(a=a, b=b, c=by(a, b), sign=sign) for b in others) + "\n" for a in ones)

    return make


def grid_of_products(rng: Rng, words: Wording) -> str:
    size = rng.randint(9, 15)
    head = "| x | " + " | ".join(map(str, range(1, size))) + " |\n" + "|---" * size + "|\n"
    return head + "".join(f"| {a} | " + " | ".join(str(a * b) for b in range(1, size)) + " |\n" for a in range(1, size))


def song(rng: Rng, words: Wording) -> str:
    chorus = filled(
        rng,
        words,
        "Oh {noun}, my {kind} {noun},\nthe {noun} {verb} the day,\noh {noun}, my {noun}, my {noun},\nand carry me away.\n\n",
    )
    verse = "The {kind} {noun} of {place}\n{verb} the {noun} of {name},\nand every {noun} in the {noun}\n{verb} it just the same.\n\n"
    return "".join(filled(rng, words, verse) + chorus for _ in range(rng.randint(5, 8)))


def call_and_answer(rng: Rng, words: Wording) -> str:
    answer = filled(rng, words, "ALL: Haul away the {noun}, haul away!\n")
    return "".join(
        filled(rng, words, "LEADER: Oh, the {noun} {verb} the {kind} {noun},\n") + answer
        for _ in range(rng.randint(12, 20))
    )


def pantoum(rng: Rng, words: Wording) -> str:
    lines = [filled(rng, words, "the {kind} {noun} {verb} the {noun}") for _ in range(24)]
    return "".join("\n".join((lines[i], lines[i + 1], lines[i + 2], lines[i + 3])) + "\n\n" for i in range(0, 20, 2))


def growing_rhyme(rng: Rng, words: Wording) -> str:
    parts = [filled(rng, words, "the {noun} that {verb} the {noun}") for _ in range(9)]
    return "".join("This is " + ",\n".join(reversed(parts[: upto + 1])) + ".\n\n" for upto in range(len(parts)))


def refrain_indented(rng: Rng, words: Wording) -> str:
    refrain = filled(rng, words, "    {kind} {noun}, {kind} {noun},\n    come back to {place}.\n\n")
    return "".join(
        filled(rng, words, "The {noun} {verb} the {kind} {noun}\nand {name} {verb} it all.\n") + refrain
        for _ in range(9)
    )


def nine_and_ninety(rng: Rng, words: Wording) -> str:
    thing = filled(rng, words, "{kind} {noun}")
    start = rng.randint(24, 34)
    return "".join(
        f"{left} {thing}s up on the wall, {left} {thing}s,\ntake one away, and pass it on: {left - 1} {thing}s up on the wall.\n\n"
        for left in range(start, 0, -1)
    )


def parallel_text(rng: Rng, words: Wording) -> str:
    code = rng.choice(list(words.foreign))
    return "".join(filled(rng, words, f"{{s}}\n{{{code}}}: {{noun}}, {{noun}}, {{place}}.\n\n") for _ in range(20))


def stack_overflow(frame: str, head: str, tail: str) -> Make:
    return same(frame, 14, 34, head=head, tail=tail)


QUIET: dict[str, Make] = {
    # stack traces
    "Java trace": rows("\tat com.example.{noun}.{Noun}Service.{verb}{Noun}({Noun}Service.java:{n})\n", 25, 60, head="java.lang.IllegalStateException: {s}\n"),
    "Java trace, recursion": stack_overflow("\tat com.example.{noun}.{Noun}Visitor.{verb}({Noun}Visitor.java:{n})\n", "java.lang.StackOverflowError\n", "\tat java.base/Thread.run(Thread.java:840)\n"),
    "Java trace, two frames": stack_overflow("\tat org.{noun}.{Noun}.{verb}({Noun}.java:{n})\n\tat org.{noun}.{Noun}.{verb}({Noun}.java:{n})\n", 'Exception in thread "main" java.lang.StackOverflowError\n', ""),
    "Java trace, causes": rows("Caused by: java.io.IOException: {noun} is {kind}\n\tat com.example.{Noun}.{verb}({Noun}.java:{n})\n\t... {d} more\n", 8, 16, head="java.lang.RuntimeException\n"),
    "Node trace": rows("    at {noun}{Verb} (/srv/app/src/{noun}/{noun}.js:{n}:{d})\n", 20, 40, head="TypeError: {noun} is not a function\n"),
    "Node trace, recursion": stack_overflow("    at {verb} (/srv/app/src/{noun}.js:{n}:{d})\n", "RangeError: Maximum call stack size exceeded\n", ""),
    "Python trace": rows('  File "/srv/app/{noun}/{noun}.py", line {n}, in {verb}\n    return {noun}.{verb}({noun})\n', 12, 30, head="Traceback (most recent call last):\n", tail="ValueError: {s}\n"),
    "Python trace, recursion": stack_overflow('  File "/srv/app/{noun}.py", line {n}, in {verb}\n    return self.{verb}(node.{noun})\n', "Traceback (most recent call last):\n", "RecursionError: maximum recursion depth exceeded\n"),
    "Go trace": rows("main.(*{Noun}).{Verb}(0xc000{hex})\n\t/srv/{noun}/{noun}.go:{n} +0x{d}d\n", 14, 30, head="goroutine {d} [running]:\n"),
    ".NET trace": rows("   at Example.{Noun}.{Verb}({Noun} {noun}) in /src/{Noun}.cs:line {n}\n", 15, 40, head="Unhandled exception. System.InvalidOperationException\n"),
    "C# recursion": stack_overflow("   at Example.{Noun}.{Verb}(Int32 {noun}) in /src/{Noun}.cs:line {n}\n", "Stack overflow.\n", ""),
    "Rust trace": rows("  {i}: {noun}::{verb}::{noun}\n             at ./src/{noun}/{noun}.rs:{n}:{d}\n", 14, 30, head="stack backtrace:\n"),
    "gdb frames": rows("#{i}  0x0000{hex} in {verb}_{noun} (node=0x{hex}, depth={n}) at {noun}.c:{n}\n", 25, 50),
    # tables
    "table of people": rows("| {name} | {place} | {n} | {yes} |\n", 25, 60, head="| name | place | number | seen |\n|---|---|---|---|\n"),
    "table of features": rows("| {kind} {noun} | yes | yes | no | {yes} |\n", 20, 40, head="| feature | basic | plus | free | trial |\n|---|---|---|---|---|\n"),
    "table with numbers": rows("| {i} | {noun} {hex} | {x} | {x} |\n", 30, 60, head="| # | item | net | gross |\n|---|---|---:|---:|\n"),
    "table of states": rows("| {i} | {verb} the {noun} of {place} | {done} |\n", 30, 50, head="| id | task | state |\n|---|---|---|\n"),
    "sign-in sheet": rows("| {i} |  |  |  |\n", 20, 36, head="| no | name | firm | signature |\n|---|---|---|---|\n"),
    "calendar of duties": rows("| {i} | {name} | {name} |\n", 28, 31, head="| day | early | late |\n|---|---|---|\n"),
    "plain columns": rows("{noun:<14}{kind:<14}{n:>8}{x:>10}\n", 30, 60),
    "boxed table": rows("│ {noun:<14} │ {kind:<12} │ {n:>6} │\n├────────────────┼──────────────┼────────┤\n", 15, 30),
    "plus table": rows("| {noun:<14} | {n:>6} |\n+----------------+--------+\n", 15, 30, head="+----------------+--------+\n"),
    "LaTeX rows": rows("{Noun} & {x} & {x} & {yes} \\\\ \\hline\n", 25, 45),
    "comma rows": rows("{i},{name},{place},{kind},{n},true\n", 40, 80, head="id,name,place,kind,number,active\n"),
    "tabbed rows": rows("{name}\t{place}\t{n}\tEUR\tpaid\n", 40, 80),
    "timetable": rows("| {time} | {place} | platform {d} | on time |\n", 30, 50, head="| leaves | for | platform | note |\n|---|---|---|---|\n"),
    "three tables": rows("### {Noun}\n\n| {noun} | {noun} |\n|---|---|\n| {kind} | {n} |\n| {kind} | {n} |\n\n", 6, 14),
    # changelogs and lists of changes
    "changelog": rows("## [1.{i}.0] - 2024-{ii}-{d}1\n\n### Added\n\n- {s}\n\n### Fixed\n\n- {s}\n\n", 9, 12),
    "release notes": rows("## {i}.{d}.0\n\n- Bug fixes and performance improvements\n- Updated dependencies\n- {Kind} {noun} now {verb} the {noun}\n\n", 10, 20),
    "git log": rows("commit {hex}{hex}{hex}{hex}{hex}\nAuthor: {name} <dev@example.com>\nDate:   Mon May {d} {time} 2024 +0200\n\n    {s}\n\n", 12, 30),
    "one-line log of changes": rows("{hex} fix({noun}): {verb} the {kind} {noun} (#{n})\n", 30, 60),
    "dependency bumps": rows("- Bump {noun}-{kind} from {d}.{d}.{d} to {d}.{i}.{d} in /packages/{noun} by @dependabot in #{n}\n", 20, 45),
    "Debian changelog": rows("{noun} (1.{i}-1) unstable; urgency=medium\n\n  * New upstream release.\n  * {s}\n\n -- {name} <{noun}@example.org>  Mon, 0{d} May 2024 {time} +0200\n\n", 8, 16),
    "conventional commits": rows("* **{noun}:** {verb} the {kind} {noun} ([{hex}](https://example.com/commit/{hex}))\n", 25, 50),
    # test listings and builds
    "pytest": rows("tests/{noun}/test_{kind}.py::test_{verb}_{noun}_{n} PASSED\n", 40, 90),
    "jest": rows("  ✓ {verb} the {kind} {noun} ({d} ms)\n", 30, 60, head="PASS src/{noun}.test.ts\n"),
    "go test": rows("=== RUN   Test{Noun}{Verb}{n}\n--- PASS: Test{Noun}{Verb}{n} (0.0{d}s)\n", 20, 50),
    "TAP": rows("ok {i} - {verb} the {kind} {noun}\n", 40, 80, head="1..80\n"),
    "bare TAP": rows("ok {i}\n", 60, 120, head="1..120\n"),
    "cargo test": rows("test {noun}::tests::{verb}_{kind}_{noun} ... ok\n", 40, 70),
    "ctest": rows("      Start {i}: {noun}_{kind}\n {i}/60 Test #{i}: {noun}_{kind} ..........   Passed    0.{d}{d} sec\n", 25, 50),
    "JUnit": rows('  <testcase classname="com.example.{Noun}Test" name="{verb}{Noun}" time="0.{d}"/>\n', 30, 60),
    "gradle": rows("> Task :{noun}:{verb}{Kind} UP-TO-DATE\n", 30, 60),
    "make": rows("gcc -O2 -Wall -Iinclude -c src/{noun}_{kind}.c -o build/{noun}_{kind}.o\n", 25, 60),
    "warnings": rows("src/{noun}.c:{n}:{d}: warning: unused variable '{noun}' [-Wunused-variable]\n", 25, 50),
    "Docker steps": rows("Step {i}/36 : RUN {verb} {noun}-{kind}\n ---> Running in {hex}\n", 15, 36),
    "coverage": rows("src/{noun}/{kind}.py      {n}      {d}     9{d}%\n", 30, 60),
    "pip": rows("Requirement already satisfied: {noun}-{kind}>={d}.0 in /usr/lib/python3 (from app)\n", 25, 50),
    # source code
    "getters": rows("    public String get{Noun}{i}() {{\n        return this.{noun};\n    }}\n\n", 20, 40),
    "switch": rows('        case {i}:\n            return "{noun}";\n', 30, 60, head="    switch (value) {{\n", tail="    }}\n"),
    "enum": rows("    {NOUN}_{KIND} = {i},\n", 40, 70, head="enum {Noun} {{\n", tail="}};\n"),
    "defines": rows("#define LED_{i} {i}\n", 32, 64),
    "pins": rows("    pinMode({i}, OUTPUT);\n    digitalWrite({i}, LOW);\n", 16, 40),
    "unrolled": rows("    sum += values[{i}] * weights[{i}];\n", 32, 64),
    "vector table": rows("    .word   IRQ_{i}_Handler\n", 48, 96),
    "assertions": rows("    assert {verb}({n}) == {n}\n", 30, 60),
    "imports": rows("from app.{noun}.{kind} import {Noun}{i}\n", 30, 60),
    "styles": rows(".{noun}-{kind} {{\n  display: flex;\n  align-items: center;\n  margin: 0 auto;\n  padding: {d}px;\n}}\n\n", 20, 40),
    "spacing styles": rows(".p-{i} {{ padding: {i}px; }}\n", 48, 96),
    "proto fields": rows("  optional string {noun}_{kind} = {i};\n", 30, 60, head="message {Noun} {{\n"),
    "array of zeros": same("    0, 0, 0, 0, 0, 0, 0, 0,\n", 8, 32, head="static const int table[] = {{\n", tail="}};\n"),
    "form fields": rows('<label for="{noun}{i}">{Noun}</label>\n<input type="text" id="{noun}{i}" name="{noun}" required>\n', 12, 25),
    "cards": same('<div class="card">\n  <h3>Title</h3>\n  <p>{s}</p>\n</div>\n', 6, 6, head='<div class="grid">\n', tail="</div>\n"),
    "grid cells": same('    <div class="cell"></div>\n', 9, 36, head='<div class="board">\n', tail="</div>\n"),
    "messages": rows('  "{noun}.{kind}.{i}": "{s}",\n', 25, 50, head="{{\n", tail='  "end": ""\n}}\n'),
    "manifests": rows("apiVersion: v1\nkind: Service\nmetadata:\n  name: {noun}-{kind}\nspec:\n  type: ClusterIP\n  ports:\n    - port: {n}\n---\n", 10, 25),
    "migrations": rows("ALTER TABLE {noun}s ADD COLUMN {kind}_{noun} VARCHAR(255) DEFAULT NULL;\n", 25, 60),
    "inserts": rows("INSERT INTO {noun} (id, name, place) VALUES ({i}, '{name}', '{place}');\n", 30, 70),
    "parametrised": rows('    ("{noun}", {n}, {n}),\n', 30, 60, head="CASES = [\n", tail="]\n"),
    "repeated call": same("    {noun}.{verb}()\n", 8, 20, head="def main():\n"),
    # licences, legal
    "licence headers": kept("==> src/{noun}_{kind}.py <==\n{shared}\n\nimport {noun}\n\n", 8, 14, keep='# Licensed under the Apache License, Version 2.0 (the "License"); you may not use this file except in\n# compliance with the License. You may obtain a copy at http://www.apache.org/licenses/LICENSE-2.0'),
    "licences of packages": kept("{noun}-{kind} {d}.{d}.{d}\nCopyright (c) 20{d}{d} {name}\n\n{shared}\n\n---\n\n", 5, 9, keep='Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation files, to deal in the Software without restriction. THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND.'),
    "clauses": rows("{i}.1 The {noun} shall be kept by {name} in {place}. Unless otherwise agreed in writing, the {kind} {noun} remains the property of the {noun}.\n\n", 14, 30),
    "whereas": rows("WHEREAS, {s}\n\n", 14, 26),
    "definitions": rows('"{Kind} {Noun}" means the {noun} that {verb} the {noun} under section {i}.\n', 20, 40),
    # records
    "JSON records": rows('  {{"id": {i}, "name": "{name}", "city": "{place}", "active": true}},\n', 30, 80, head="[\n", tail="]\n"),
    "JSON users": rows('  {{"id": {i}, "name": "User {i}", "email": "user{i}@example.com"}},\n', 30, 100, head="[\n", tail="]\n"),
    "JSON printed": rows('  {{\n    "id": {i},\n    "{noun}": "{kind}",\n    "price": {x},\n    "tags": []\n  }},\n', 20, 40, head="[\n", tail="]\n"),
    "JSON lines": rows('{{"event": "view", "user": "{name}", "at": "{time}", "ok": true, "extra": null}}\n', 30, 80),
    "points": rows('{{"type": "Feature", "properties": {{}}, "geometry": {{"type": "Point", "coordinates": [{x}, {x}]}}}},\n', 25, 60),
    "YAML records": rows("- id: {i}\n  name: {name}\n  place: {place}\n  active: true\n", 25, 60),
    "XML records": rows('<book id="bk{iii}">\n  <author>{name}</author>\n  <title>{Kind} {Noun}</title>\n  <price>{x}</price>\n</book>\n', 15, 40),
    "cards of people": rows("BEGIN:VCARD\nVERSION:3.0\nFN:{name} {Noun}\nORG:Example Limited\nEND:VCARD\n", 15, 40),
    "settings": rows("[{noun}.{kind}]\nenabled = true\ntimeout = 30\nretries = {d}\n\n", 15, 40),
    # logs
    "heartbeats": rows("2024-05-01 12:{ii}:00 worker alive, queue length 0, nothing was lost and nobody waits\n", 24, 36, first=10),
    "service log": rows("{time} INFO  [{noun}] {verb} request {n} of {name} in {d} ms\n", 40, 80),
    "requests": rows('10.0.0.{d} - - [01/May/2024:{time} +0000] "GET /{noun}/{n} HTTP/1.1" 200 {n}\n', 40, 80),
    "items of many": rows("Processing item {i} of 36: {noun}_{kind}.csv ... ok\n", 25, 36),
    "items, bare": rows("Processed {i}/30 items\n", 20, 30),
    "downloads": rows("Downloading {noun}-{kind}: {i2}% complete, {x} MB of 120 MB\n", 25, 45),
    "epochs": rows("Epoch {i}/40: loss {x}, accuracy {x}, learning rate 0.001\n", 25, 40),
    "unit log": rows("May 01 {time} host systemd[1]: Started {Kind} {noun} of user {name}.\n", 30, 60),
    "migrations applied": rows("  Applying {noun}.{iii}_{kind}_{noun}... OK\n", 25, 60),
    "pulls": rows("{hex}: Pull complete\n", 15, 40),
    "events": rows("{d}m{d}s  Normal  Pulled  pod/{noun}-{hex}  Container image already present on machine\n", 20, 45),
    # songs, poems, prayers
    "song": song,
    "call and answer": call_and_answer,
    "pantoum": pantoum,
    "growing rhyme": growing_rhyme,
    "indented refrain": refrain_indented,
    "counted song": nine_and_ninety,
    "haiku": rows("{kind} {noun}\nthe {noun} {verb} the {noun}\n{kind}, {kind} {noun}\n\n", 12, 30),
    "indented poem": rows("    The {kind} {noun} {verb} the {noun},\n        and {name} {verb} the {noun},\n", 14, 30),
    "litany": rows("{Kind} {noun} of {place}, be with us.\n", 25, 50),
    "blessings": rows("Blessed is the {noun} that {verb} the {kind} {noun}, for {name} shall see {place}.\n\n", 12, 24),
    "odes": rows("O {kind} {noun}, O {kind} {noun}!\n{s}\n\n", 12, 24),
    # translations, lessons
    "parallel text": parallel_text,
    "vocabulary": rows("- **{noun}** - {hi}\n- **{noun}** - {zh}\n", 15, 30),
    "phrases": rows("{i}. {s} - {ja}\n", 15, 30),
    "subtitles": rows("{i}\n00:{ii}:01,000 --> 00:{ii}:04,500\n{s}\n\n", 25, 59),
    "choice of answers": rows("{i}. What {verb} the {kind} {noun}?\n   a) the {noun}\n   b) the {noun}\n   c) {place}\n   d) none of the above\n\n", 14, 30),
    "true or false": rows("{i}. {s}\nTrue / False\n\n", 20, 40),
    "questions and answers": rows("Q{i}: {s}\nA: {s}\n\n", 15, 40),
    "flash cards": rows("Front: {kind} {noun}\nBack: {s}\n---\n", 15, 40),
    "answer lines": rows("Question {i}: ______________________\n\n", 20, 40),
    "gaps": rows("{i}. The {noun} ________ the {kind} {noun} in {place}.\n", 20, 40),
    "times": times_table("x", lambda a, b: a * b, "{a} {sign} {b} = {c}\n"),
    "sums": times_table("+", lambda a, b: a + b, "{a} {sign} {b} = {c}\n"),
    "times in words": times_table("times", lambda a, b: a * b, "{a} {sign} {b} is {c}.\n"),
    "grid of products": grid_of_products,
    "squares": rows("The square of {i} is {ii2}.\n", 30, 60),
    "conversion": rows("{i} weeks = {i7} days\n", 30, 52),
    "even numbers": rows("Number {i}: two times {i} is {i2}, which is even.\n", 20, 40),
    # lists and plans
    "tasks": rows("- [ ] {Verb} the {kind} {noun} of {place}\n", 30, 60),
    "steps": rows("{i}. {Verb} the {kind} {noun} and wait until {name} {verb} it.\n", 25, 60),
    "stories": rows("As a {kind} user, I want to see the {noun}, so that {name} {verb} the {noun}.\n", 20, 40),
    "days of training": rows("Day {i}: {d} squats, {d}{d} push-ups, {d} lunges, then rest for one minute.\n", 24, 30),
    "weeks of a course": rows("Week {i}: {Kind} {noun}\n  - Reading: {noun} and {noun}\n  - Homework: {verb} the {noun}\n\n", 10, 15),
    "seats": rows("Seat {i}: {name}\n", 30, 80),
    "contents": rows("{i}. {Kind} {noun} of {place} ........ {i7}\n", 20, 45),
    "index": rows("{noun}, {kind}, {n}, {n}, {n}\n", 40, 80),
    "bibliography": rows("[{i}] {name} and {name}. The {kind} {noun} of {place}. Journal of {Noun}s, {n}.\n", 20, 45),
    "recipes": rows("### {Kind} {noun}\n\n**Serves:** 4\n**Time:** {d}0 minutes\n\n1. {s}\n2. {s}\n\n", 8, 16),
    "minutes of meetings": rows("### Item {i}\n\n**Presented by:** {name}\n\n**Discussion:** {s}\n\n**Decision:** postponed\n\n", 10, 20),
    "reviews": rows("**{name}** - {d} out of 10\n\n{s}\n\nWas this review helpful? Yes / No\n\n", 14, 26),
    "outline": rows("  {i}. {Kind} {noun}\n     a. {noun} of {place}\n     b. {noun} of {name}\n", 15, 30),
    "knitting": rows("Row {i}: K{d}, P{d}, K{d}{d}, P{d}, turn.\n", 20, 40),
    # dialogues, thoughts
    "interview": rows("INTERVIEWER: {s}\n\n{name}: Well, {s} {s}\n\n", 14, 26),
    "chat": rows("{name}: {s}\n", 30, 60),
    "support": rows("Agent: How can I help you today?\nCustomer: {s}\nAgent: {s}\n\n", 8, 16),
    "knock, knock": rows("A: Knock, knock.\nB: Who is there?\nA: {Noun}.\nB: {Noun} who?\nA: {s}\n\n", 8, 16),
    "asked again": same("Anna: Are we there yet?\nBoris: Not yet.\n", 3, 4, head="They drove on.\n\n", tail="Then it was dark.\n"),
    "cases": rows("Case {i}: suppose that n = {n}. Then the {noun} {verb} {n}, so the case is {yes}.\n\n", 14, 30),
    "thoughts": rows("Wait, {s} Hmm, {s}\n\n", 14, 30),
    "file by file": rows("Let me look at `src/{noun}/{kind}.py`. {s} That looks fine.\n\n", 14, 30),
    "indented notes": rows("    {s}\n", 20, 40),
}  # fmt: skip
