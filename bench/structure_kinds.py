"""Loops that have structure, and good texts that look like them: the made set of `bench.structure`.

A template is filled anew with words; `{s}` is a sentence, `{i}` the number of the row, `@` a
counter that runs. There are two wordings, each with words, sentences and labels of its own: the
rules were tuned on the first and have never been tuned on the second.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from bench import benign_kinds

Rng: TypeAlias = random.Random
Counter: TypeAlias = Callable[[int], str]


@dataclass(frozen=True, kw_only=True)
class Wording:
    """What a template is filled with."""

    name: str
    nouns: Sequence[str]
    verbs: Sequence[str]
    kinds: Sequence[str]
    names: Sequence[str]
    places: Sequence[str]
    shapes: Sequence[str]
    """Sentences with fields."""
    step: Sequence[str]
    """What is counted in a loop."""
    state: Sequence[str]
    """What a row says that says nothing."""
    tool: Sequence[str]
    speakers: Sequence[tuple[str, str]]
    foreign: dict[str, Sequence[str]]
    """Sentences of other languages, by their code."""


FIRST = Wording(
    name="tuned",
    nouns=benign_kinds.NOUNS,
    verbs=benign_kinds.VERBS,
    kinds=benign_kinds.KINDS,
    names=benign_kinds.NAMES,
    places=benign_kinds.CITIES,
    shapes=(
        "The {kind} {noun} {verb} the {noun} of {place}.",
        "{name} {verb} a {kind} {noun} in {place}, where the {noun} {verb} it.",
        "When a {noun} {verb} what the {kind} {noun} {verb}, {name} {verb} it again.",
        "No {noun} {verb} it; every {noun} is {kind} or {kind}.",
    ),
    step=("Step", "Attempt", "Iteration", "Try"),
    state=(
        "pending and not started yet",
        "open, nobody has looked at it",
        "waiting for the next run",
        "to be done later on",
    ),
    tool=("read_file", "run_tests", "list_directory", "search"),
    speakers=(("User", "Assistant"), ("Anna", "Boris"), ("Customer", "Agent")),
    foreign={
        "hi": ("मैं फिर से फ़ाइल को पढ़ूँगा और देखूँगा कि क्या बदला है", "अब मुझे एक बार और जाँच करनी चाहिए कि सब ठीक है"),
        "ar": ("سأقرأ الملف مرة أخرى وأرى ما الذي تغير فيه", "يجب أن أتحقق من النتيجة مرة أخرى قبل المتابعة"),
        "th": ("ฉันจะอ่านไฟล์อีกครั้งและดูว่ามีอะไรเปลี่ยนแปลงบ้าง", "ตอนนี้ต้องตรวจสอบผลลัพธ์อีกครั้งหนึ่งก่อน"),
        "zh": ("我需要再次检查配置文件并且重新运行所有的测试", "然后看看问题是不是已经解决如果没有就继续"),
        "ja": (
            "もう一度設定ファイルを確認してからテストを実行します",
            "次に結果を調べて問題が残っているかどうかを見ます",
        ),
        "bn": ("আমি আবার ফাইলটি পড়ব এবং দেখব কী পরিবর্তন হয়েছে", "এখন আমাকে আরও একবার ফলাফল যাচাই করতে হবে"),
        "fa": (
            "دوباره پرونده را می‌خوانم و می‌بینم چه چیزی عوض شده است",
            "باید پیش از ادامه یک بار دیگر نتیجه را بررسی کنم",
        ),
    },
)
SECOND = Wording(
    name="held out",
    nouns=(
        *(
            "invoice",
            "satellite",
            "pension",
            "reactor",
            "glacier",
            "tribunal",
            "vaccine",
            "turbine",
            "mortgage",
            "archive",
            "dialect",
            "cathedral",
        ),
        *(
            "contract",
            "antenna",
            "senate",
            "pipeline",
            "orchestra",
            "warehouse",
            "comet",
            "treaty",
            "laboratory",
            "tariff",
            "sediment",
            "ferry",
        ),
        *(
            "catalogue",
            "surgeon",
            "tenant",
            "voltage",
            "enzyme",
            "chancellor",
            "microscope",
            "plateau",
            "auditor",
            "freighter",
            "sculpture",
            "quota",
        ),
    ),
    verbs=(
        *(
            "approves",
            "delays",
            "exceeds",
            "funds",
            "inspects",
            "replaces",
            "stores",
            "rejects",
            "transmits",
            "restores",
            "absorbs",
            "cancels",
        ),
        *(
            "governs",
            "insures",
            "launches",
            "monitors",
            "negotiates",
            "orbits",
            "pays",
            "ratifies",
            "samples",
            "taxes",
            "updates",
            "weighs",
        ),
    ),
    kinds=(
        "annual",
        "coastal",
        "digital",
        "empty",
        "fiscal",
        "granite",
        "humid",
        "interim",
        "legal",
        "magnetic",
        "nominal",
        "public",
        "rural",
        "steep",
        "toxic",
        "urban",
    ),
    names=(
        "Ahmed",
        "Birgit",
        "Chidi",
        "Daria",
        "Emeka",
        "Freya",
        "Gustav",
        "Hana",
        "Idris",
        "Jorge",
        "Katya",
        "Leila",
        "Mateo",
        "Noor",
        "Otto",
        "Priya",
        "Ravi",
        "Saskia",
    ),
    places=(
        "Nairobi",
        "Utrecht",
        "Montreal",
        "Osaka",
        "Cardiff",
        "Bogota",
        "Leipzig",
        "Adelaide",
        "Tbilisi",
        "Porto",
        "Windhoek",
        "Calgary",
    ),
    shapes=(
        "According to {name}, the {kind} {noun} rarely {verb} any {noun} outside {place}.",
        "Both the {noun} and its {kind} {noun} were moved to {place} after {name} left.",
        "It is still unclear whether the {noun} {verb} the {kind} {noun}, as {name} wrote from {place}.",
        "Unless a {noun} {verb} it first, the {kind} {noun} remains with {name}.",
    ),
    step=("Round", "Pass", "Phase", "Cycle"),
    state=(
        "queued until somebody picks it up",
        "no answer has come so far",
        "unchanged since the last look",
        "left as it was for now",
    ),
    tool=("get_weather", "query_database", "open_page", "execute_command"),
    speakers=(("Human", "Bot"), ("Katya", "Otto"), ("Caller", "Operator")),
    foreign={
        "hi": ("कृपया थोड़ा इंतज़ार करें, मैं आपका अनुरोध दोबारा भेज रहा हूँ", "इस सूची में कोई नई पंक्ति नहीं मिली, इसलिए आगे बढ़ते हैं"),
        "ar": (
            "الرجاء الانتظار قليلا بينما أعيد إرسال الطلب إلى الخادم",
            "لم يظهر أي سطر جديد في القائمة ولذلك ننتقل إلى التالي",
        ),
        "th": ("กรุณารอสักครู่ กำลังส่งคำขอไปยังเซิร์ฟเวอร์ใหม่อีกรอบ", "ไม่พบแถวใหม่ในรายการนี้จึงไปยังขั้นตอนถัดไป"),
        "zh": ("请稍等片刻系统正在向服务器重新发送这个请求", "列表里没有发现新的记录所以我们进入下一个阶段"),
        "ja": (
            "少々お待ちくださいサーバーに要求を送り直しています",
            "一覧に新しい行は見つかりませんでしたので先へ進みます",
        ),
        "bn": ("অনুগ্রহ করে একটু অপেক্ষা করুন, অনুরোধটি আবার পাঠানো হচ্ছে", "তালিকায় নতুন কোনো সারি পাওয়া যায়নি তাই এগিয়ে যাই"),
        "fa": (
            "لطفا کمی صبر کنید تا درخواست دوباره به سرور فرستاده شود",
            "سطر تازه‌ای در فهرست پیدا نشد پس به مرحلهٔ بعد می‌رویم",
        ),
    },
)
WORDINGS = (FIRST, SECOND)


class Said(dict[str, str]):
    """Fields of a template; each is drawn anew wherever it stands."""

    def __init__(self, rng: Rng, words: Wording, **fixed: object) -> None:
        super().__init__({name: str(value) for name, value in fixed.items()})
        self._rng = rng
        self._words = words

    def __missing__(self, key: str) -> str:
        rng, words = self._rng, self._words
        if key.islower() and key in words.foreign:
            return rng.choice(words.foreign[key])
        draws: dict[str, Callable[[], str]] = {
            "noun": lambda: rng.choice(words.nouns),
            "verb": lambda: rng.choice(words.verbs),
            "kind": lambda: rng.choice(words.kinds),
            "name": lambda: rng.choice(words.names),
            "place": lambda: rng.choice(words.places),
            "s": lambda: rng.choice(words.shapes).format_map(self),
            "step": lambda: rng.choice(words.step),
            "state": lambda: rng.choice(words.state),
            "tool": lambda: rng.choice(words.tool),
            "n": lambda: str(rng.randrange(2, 9999)),
            "d": lambda: str(rng.randrange(10)),
            "x": lambda: f"{rng.uniform(0, 100):.2f}",
            "hex": lambda: f"{rng.randrange(16**8):08x}",
            "time": lambda: f"{rng.randrange(24):02}:{rng.randrange(60):02}:{rng.randrange(60):02}",
            "yes": lambda: rng.choice(("yes", "no", "partly")),
            "done": lambda: rng.choice(("done", "open", "blocked", "in review")),
        }
        word = draws[key.lower()]()
        return word.title() if key.istitle() else word.upper() if key.isupper() else word


def filled(rng: Rng, words: Wording, template: str, **fixed: object) -> str:
    """The template with words."""
    return template.format_map(Said(rng, words, **fixed))


def healthy(rng: Rng, words: Wording) -> str:
    """Some paragraphs that say something new."""
    return "\n\n".join(filled(rng, words, " ".join(["{s}"] * rng.randint(2, 5))) for _ in range(rng.randint(2, 8)))


# Counters


def digits(zero: str) -> Counter:
    """Decimal, in the digits of a script."""
    table = str.maketrans("0123456789", "".join(chr(ord(zero) + digit) for digit in range(10)))
    return lambda number: str(number).translate(table)


def chinese(number: int) -> str:
    """Up to 999."""
    figures = "零一二三四五六七八九"
    hundreds, rest = divmod(number, 100)
    tens, ones = divmod(rest, 10)
    said = f"{figures[hundreds]}百{'零' if 0 < rest < 10 else ''}" if hundreds else ""
    if tens:
        said += "十" if tens == 1 and not hundreds else f"{figures[tens]}十"
    return said + (figures[ones] if ones else "")


def roman(number: int) -> str:
    """As on a clock."""
    said = ""
    for value, sign in (
        (100, "C"),
        (90, "XC"),
        (50, "L"),
        (40, "XL"),
        (10, "X"),
        (9, "IX"),
        (5, "V"),
        (4, "IV"),
        (1, "I"),
    ):
        said += sign * (number // value)
        number %= value
    return said


def letters(number: int) -> str:
    """a, b ... z, aa, ab."""
    said = ""
    while number:
        number, last = divmod(number - 1, 26)
        said = chr(97 + last) + said
    return said


# Loops


@dataclass(frozen=True, kw_only=True)
class Loop:
    """One unit, written over and over; where it has `@`, with the next number."""

    unit: str
    rounds: tuple[int, int]
    count: Counter = str
    by: int = 1
    opening: str = "\n\n"


def block(unit: str, opening: str = "\n\n") -> Loop:
    """A whole block, seven times and more."""
    return Loop(unit=unit, rounds=(7, 12), opening=opening)


def five(unit: str, opening: str = "\n\n") -> Loop:
    """What is enough at five."""
    return Loop(unit=unit, rounds=(5, 7), opening=opening)


def counted(unit: str, count: Counter = str, by: int = 1, least: int = 45) -> Loop:
    """A line with a counter."""
    return Loop(unit=unit, rounds=(least, least + 35), count=count, by=by)


def rows(unit: str, least: int = 70) -> Loop:
    """Rows in which nothing but the id is new."""
    return Loop(unit=unit, rounds=(least, least + 40))


def plan(unit: str, count: Counter = str) -> Loop:
    """Some lines with a counter."""
    return Loop(unit=unit, rounds=(18, 26), count=count)


DEVANAGARI, ARABIC, THAI, BENGALI, PERSIAN, WIDE = map(digits, "\u0966\u0660\u0e50\u09e6\u06f0\uff10")
LOOPS: dict[str, Loop] = {
    "numbered list": block("1. {s}\n2. {s}\n3. {s}\n\n"),
    "short numbered list": block("1. {Verb} the {noun}\n2. {Verb} the {noun}\n3. {Verb} the {noun}\n4. {Verb} it\n\n"),
    "numbered list with a title": block("Here is the plan:\n\n1. {Verb} the {kind} {noun}\n2. {Verb} the {noun}\n3. {Verb} it\n\n"),
    "numbered list, no blank line": block("1. {Verb} the {kind} {noun}\n2. {Verb} the {noun} of {name}\n3. {Verb} {place}\n"),
    "bullets": block("- {s}\n- {s}\n\n"),
    "short bullets": block("* {kind} {noun}\n* {kind} {noun} of {place}\n* {noun} and {noun}\n\n"),
    "nested bullets": block("- {Kind} {noun}\n  - {verb} the {noun}\n  - {verb} {place}\n- {Noun}\n  - {verb} it\n\n"),
    "checklist": block("- [x] {Verb} the {noun}\n- [ ] {Verb} the {kind} {noun}\n- [ ] {Verb} {name}\n\n"),
    "roman list": block("I. {Noun} of {place}\nII. {Noun} of {place}\nIII. {Noun} of {name}\n\n"),
    "lettered list": block("a) {verb} the {noun}\nb) {verb} the {kind} {noun}\nc) {verb} the {noun} of {place}\n\n"),
    "Chinese numbered list": block("1. {zh}\n2. {zh}\n3. {zh}\n\n"),
    "heading and bullets": block("## {Kind} {noun}\n\n- {verb} the {noun}\n- {verb} the {kind} {noun}\n- {verb} {place}\n\n"),
    "headings": block("## {Kind} {noun}\n\n### {Noun} of {place}\n\n### {Noun} and {noun}\n\n"),
    "bold terms": block("**{Noun}**: {verb} the {kind} {noun}\n**{Noun}**: {verb} the {noun}\n**{Noun}**: {verb} {place}\n\n"),
    "quote of three lines": block("> {s}\n> {s}\n> {s}\n\n"),
    "fenced python": block("```python\ndef {noun}(value):\n    return value + {n}\n\n\nprint({noun}({n}))\n```\n\n"),
    "fenced shell": block("```bash\ncd /srv/{noun}\nmake {verb}\n./{noun} --{kind}\n```\n\n"),
    "fenced with a sentence": block("{s}\n\n```sh\n./{noun} --{kind} {n}\n```\n\n"),
    "tildes": block("~~~\n{noun} {n}\n{kind} {noun} {n}\n{noun} of {place}\n~~~\n\n"),
    "fenced JSON": block('```json\n{{\n  "{noun}": "{kind}",\n  "{noun}": {n},\n  "{noun}": "{place}"\n}}\n```\n\n'),
    "fenced diff": block("```diff\n--- a/{noun}.py\n+++ b/{noun}.py\n-    return {n}\n+    return {n} + {n}\n```\n\n"),
    "fenced log": block("```\n{time} INFO {noun} {verb} the {noun}\n{time} ERROR {noun} is {kind}\n```\n\n"),
    "table": block("| {noun} | {noun} |\n|---|---|\n| {kind} | {n} |\n| {kind} | {n} |\n\n"),
    "table with a title": block("**{Noun} of {place}**\n\n| {noun} | {noun} |\n| --- | --- |\n| {kind} | {yes} |\n| {kind} | {yes} |\n\n"),
    "wide table": block("| {Noun} | {Kind} | {Noun} |\n|:---|:---:|---:|\n| {s} | {yes} | {n} |\n| {s} | {yes} | {n} |\n\n"),
    "tool call": block('<tool_call>\n{{"name": "{tool}", "arguments": {{"path": "src/{noun}.py"}}}}\n</tool_call>\n'),
    "tool call in a line": block('<tool_call>{{"name": "{tool}", "arguments": {{"{noun}": "{kind} {noun}"}}}}</tool_call>\n'),
    "invoke": block('<function_calls>\n<invoke name="{tool}">\n<parameter name="{noun}">{kind} {noun}</parameter>\n</invoke>\n</function_calls>\n\n'),
    "function tags": block("<function={tool}>\n<parameter={noun}>\n{kind} {noun}\n</parameter>\n</function>\n"),
    "call tokens": block('<|tool_call_begin|>{tool}<|tool_sep|>{{"{noun}": "{kind}"}}<|tool_call_end|>\n'),
    "bracketed calls": block('[TOOL_CALLS] [{{"name": "{tool}", "arguments": {{"{noun}": "{place}"}}}}]\n'),
    "call as JSON line": block('{{"name": "{tool}", "arguments": {{"{noun}": "{kind} {noun}"}}}}\n'),
    "tool code": block('```tool_code\nprint({tool}({noun}="{kind}"))\n```\n'),
    "tags of tools": block("<{tool}>\n<path>src/{noun}.py</path>\n</{tool}>\n\n"),
    "channel call": block('<|channel|>commentary to=functions.{tool} <|message|>{{"{noun}": "{kind}"}}<|call|>\n'),
    "table of another kind": block("| {noun} | {noun} |\n|------+-------|\n| {kind} | {n} |\n| {kind} | {n} |\n\n"),
    "signs for bullets": block("✅ {verb} the {kind} {noun}\n✅ {verb} the {noun}\n❌ {verb} {place}\n\n"),
    "action and input": block("Thought: {s}\nAction: {tool}\nAction Input: {kind} {noun}\nObservation: none\n"),
    "tags with prose": block("<thinking>\n{s}\n</thinking>\n\n"),
    "step on lines": counted("{step} @: {s}\n"),
    "step in a paragraph": counted("{step} @: {s} "),
    "short step": counted("{step} @: {verb} the {noun} again.\n"),
    "numbered for ever": counted("@. {s}\n"),
    "bulleted steps": counted("- {step} @: {s}\n"),
    "bold steps": counted("**{step} @:** {s}\n\n"),
    "headed steps": counted("## {step} @\n\n{s}\n\n"),
    "bracketed number": counted("[@] {s}\n"),
    "step of many": counted("{step} @ of 500: {s}\n"),
    "counter at the end": counted("{s} This is {step} number @.\n"),
    "counter within": counted("In {step} @ the {noun} {verb} the {kind} {noun}, and nothing has changed.\n"),
    "step of a share": counted("{step} @/500: {s}\n"),
    "keycaps": counted("{step} @ {s}\n", lambda number: "".join(f"{digit}\ufe0f\u20e3" for digit in str(number))),
    "by tens": counted("{step} @: {s}\n", by=10),
    "counting down": counted("{step} @: {s}\n", count=lambda number: str(400 - number)),
    "Devanagari": counted("चरण @: {hi}।\n", DEVANAGARI),
    "Arabic digits": counted("الخطوة @: {ar}.\n", ARABIC),
    "Thai digits": counted("ขั้นตอนที่ @: {th}\n", THAI),
    "Bengali digits": counted("ধাপ @: {bn}।\n", BENGALI),
    "Persian digits": counted("گام @: {fa}.\n", PERSIAN),
    "wide digits": counted("ステップ@：{ja}。\n", WIDE),
    "Chinese numerals": counted("第@步：{zh}。\n", chinese),
    "Chinese numerals, no lines": counted("第@次，{zh}。", chinese),
    "roman numerals": counted("{step} @. {s}\n", roman),
    "running letters": counted("@. {s}\n", letters),
    "three lines counted": plan("@. {s}\n   {s}\n   {s}\n"),
    "counted plan": plan("**{step} @**\n\n1. {Verb} the {kind} {noun}\n2. {Verb} the {noun}\n3. {Verb} {place}\n\n"),
    "counted block": plan("```python\n# {step} @\n{noun} = {verb}({noun})\n```\n\n"),
    "counted call": plan('<tool_call>\n{{"name": "{tool}", "arguments": {{"{noun}": @}}}}\n</tool_call>\n'),
    "Chinese plan counted": plan("第@步\n\n{zh}。\n{zh}。\n\n", chinese),
    "table rows": rows("| @ | {state} | {yes} |\n"),
    "comma rows": rows("@,{state},{yes}\n"),
    "listed rows": rows("@) {state}\n"),
    "JSON rows": rows('{{"id": @, "state": "{state}", "{noun}": null}},\n', 140),
    "SQL rows": rows("(@, '{state}', NULL, 0),\n", 140),
    "HTML rows": rows("<tr><td>@</td><td>{state}</td></tr>\n", 140),
    "two speakers": five("{one}: {s}\n{two}: {s}\n"),
    "two speakers, blank lines": five("{one}: {s}\n\n{two}: {s}\n\n"),
    "bold speakers": five("**{one}:** {s}\n\n**{two}:** {s}\n\n"),
    "speakers, short lines": five("{one}: Who {verb} the {kind} {noun}?\n{two}: The {noun} {verb} it.\n"),
    "speakers in capitals": five("{ONE}: {s}\n{TWO}: {s}\n"),
    "dashes": five("— {s}\n— {s}\n\n"),
    "quotation marks": five('"{s}" she asked.\n"{s}" he said.\n\n'),
    "Chinese speakers": five("甲：{zh}。\n乙：{zh}。\n"),
    "indented line": five("    {s} {s}\n"),
    "tabbed line": five("\t{s} {s}\n"),
    "indented paragraph": five("   {s}\n   {s}\n   {s}\n\n"),
    "indented and counted": counted("    {step} @: {s}\n"),
}  # fmt: skip


def looping(loop: Loop, rng: Rng, words: Wording) -> tuple[str, int]:
    """Healthy text, then the loop; and where it begins."""
    one, two = rng.choice(words.speakers)
    unit = filled(rng, words, loop.unit, one=one, two=two, ONE=one.upper(), TWO=two.upper())
    before = healthy(rng, words) + loop.opening
    first = rng.randint(1, 40)
    numbers = range(first, first + loop.by * rng.randint(*loop.rounds), loop.by)
    return before + "".join(unit.replace("@", loop.count(number)) for number in numbers), len(before)
