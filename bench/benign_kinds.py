"""Good texts of many kinds, made from a seed: what a detector must not stop, however often
something in it comes again.

No kind of the recorded corpus is here on purpose. Songs and prayers are older than any copyright;
everything else is made.
"""

from __future__ import annotations

import base64
import csv
import io
import json
import math
import random
import uuid
from collections.abc import Callable
from typing import TypeAlias

Rng: TypeAlias = random.Random
Make: TypeAlias = Callable[[Rng], str]

NOUNS = [
    "river",
    "garden",
    "letter",
    "engine",
    "window",
    "market",
    "teacher",
    "mountain",
    "bottle",
    "captain",
    "winter",
    "village",
    "doctor",
    "kitchen",
    "island",
    "bridge",
    "painter",
    "forest",
    "lantern",
    "harvest",
    "valley",
    "sailor",
    "basket",
    "mirror",
    "station",
    "orchard",
    "blanket",
    "chimney",
    "compass",
    "anchor",
    "ladder",
    "meadow",
    "farmer",
    "feather",
    "harbour",
    "journal",
    "kettle",
    "library",
    "magnet",
    "needle",
    "parcel",
    "quarry",
    "rabbit",
    "saddle",
    "temple",
    "violin",
    "wagon",
    "workshop",
    "barrel",
    "candle",
    "desert",
    "factory",
]
VERBS = [
    "carries",
    "follows",
    "finds",
    "mends",
    "paints",
    "keeps",
    "leaves",
    "builds",
    "opens",
    "closes",
    "measures",
    "watches",
    "answers",
    "borrows",
    "counts",
    "describes",
    "enters",
    "forgets",
    "gathers",
    "hides",
    "imagines",
    "joins",
    "kindles",
    "learns",
    "moves",
    "notices",
    "offers",
    "pulls",
    "questions",
    "reaches",
    "sells",
    "teaches",
    "uses",
    "visits",
]
KINDS = [
    "old",
    "quiet",
    "heavy",
    "narrow",
    "golden",
    "broken",
    "distant",
    "early",
    "foreign",
    "gentle",
    "hollow",
    "iron",
    "lonely",
    "modern",
    "northern",
    "open",
    "patient",
    "quick",
    "rough",
    "silver",
    "tall",
    "useful",
    "violet",
    "warm",
    "yellow",
    "ancient",
    "bitter",
    "careful",
    "dusty",
    "eager",
    "faithful",
    "grey",
    "honest",
    "icy",
]
WAYS = [
    "slowly",
    "often",
    "again",
    "twice",
    "carefully",
    "yesterday",
    "once",
    "soon",
    "rarely",
    "together",
    "alone",
    "outside",
    "at",
    "night",
    "in",
    "spring",
    "before",
    "noon",
]
NAMES = [
    "Aiko",
    "Bruno",
    "Carmen",
    "Dmitri",
    "Esther",
    "Fatou",
    "Georg",
    "Huda",
    "Ivan",
    "Jana",
    "Kofi",
    "Lars",
    "Mina",
    "Nadia",
    "Omar",
    "Petra",
    "Quim",
    "Rosa",
    "Sven",
    "Tala",
    "Umar",
    "Vera",
]
CITIES = [
    "Lisbon",
    "Oslo",
    "Accra",
    "Lima",
    "Kyoto",
    "Tunis",
    "Riga",
    "Quito",
    "Hanoi",
    "Perth",
    "Gdansk",
    "Izmir",
    "Bergen",
    "Malaga",
    "Turku",
    "Dakar",
]


def sentence(rng: Rng) -> str:
    noun, other = rng.sample(NOUNS, 2)
    shape = rng.randrange(5)
    kind, verb = rng.choice(KINDS), rng.choice(VERBS)
    if shape == 0:
        return f"The {kind} {noun} {verb} the {other} {rng.choice(WAYS)}."
    if shape == 1:
        return f"{rng.choice(NAMES)} {verb} a {kind} {noun} in {rng.choice(CITIES)}, where the {other} {rng.choice(VERBS)} {rng.choice(WAYS)}."
    if shape == 2:
        return f"When a {noun} {verb} what the {kind} {other} {rng.choice(VERBS)}, {rng.choice(NAMES)} {rng.choice(VERBS)} it {rng.choice(WAYS)}."
    if shape == 3:
        return f"No {noun} {verb} {rng.choice(WAYS)}; every {other} is {kind} or {rng.choice(KINDS)}."
    return f"In {rng.randrange(1400, 2020)} the {other} of {rng.choice(CITIES)} {verb} its {kind} {noun}."


def prose(rng: Rng, chars: int = 4000) -> str:
    out, size = [], 0
    while size < chars:
        paragraph = " ".join(sentence(rng) for _ in range(rng.randint(2, 6)))
        out.append(paragraph)
        size += len(paragraph) + 2
    return "\n\n".join(out)


def _lines(count: int, line: Callable[[int], str]) -> str:
    return "".join(f"{line(row)}\n" for row in range(count))


# Languages


def _language(words: str, *, glue: str = " ", stop: str = ". ", least: int = 5) -> Make:
    vocabulary = words.split()

    def make(rng: Rng) -> str:
        sentences = (glue.join(rng.choices(vocabulary, k=rng.randint(least, least + 9))) for _ in range(120))
        return "".join(one + stop + ("\n\n" if rng.random() < 0.15 else "") for one in sentences)

    return make


LANGUAGES: dict[str, Make] = {
    "chinese": _language(
        "我们 今天 学习 历史 问题 城市 发展 经济 人民 生活 水平 提高 政府 政策 实施 以后 许多 企业 开始 投资 新的 技术 项目 教育 改革 影响 很大 老师 认为 学生 应该 自己 思考 而不是 记忆",
        glue="",
        stop="。",
    ),
    "japanese": _language(
        "昨日 友達と 図書館で 新しい 本を 読みました 電車が 遅れて 会議に 間に合わなかった 先生は 丁寧に 説明して くれました 天気が よければ 海へ 行く つもりです 日本の 料理は とても おいしい と 思います 彼女は 静かに 窓を 開けた",
        glue="",
        stop="。",
    ),
    "korean": _language(
        "오늘 아침에 학교에 가는 길에 친구를 만났다 우리는 함께 도서관에서 책을 읽고 점심을 먹었다 날씨가 좋아서 공원을 산책하기로 했다 선생님은 새로운 문제를 설명해 주셨다"
    ),
    "thai": _language(
        "วันนี้ อากาศ ดี มาก เรา ไป ตลาด ซื้อ ผลไม้ และ ผัก แม่ ทำ อาหาร เย็น ให้ ทุกคน น้อง ชอบ อ่าน หนังสือ ใน ห้องสมุด ครู สอน ภาษา",
        glue="",
        stop=" ",
    ),
    "arabic": _language(
        "ذهب الطالب إلى المدرسة صباحا وقرأ كتابا جديدا عن تاريخ المدينة القديمة ثم عاد البيت مع صديقه لكن المطر نزل فجأة فجلسا تحت الشجرة"
    ),
    "hindi": _language(
        "आज सुबह मैं बाज़ार गया और वहाँ से ताज़ी सब्ज़ियाँ खरीदकर घर लौटा फिर हमने साथ में भोजन किया बच्चे पार्क में खेल रहे थे", stop="। "
    ),
    "hebrew": _language(
        "הילד הלך אל הספר הישן וקרא בו סיפור על עיר רחוקה ועל הים הגדול אחר כך חזר הביתה עם אחותו ואכל לחם וגבינה"
    ),
    "russian": _language(
        "утром старый капитан вышел на берег и долго смотрел как рыбаки чинят свои сети потом он вернулся домой где его ждала дочь с письмом"
    ),
    "greek": _language(
        "το πρωί ο δάσκαλος άνοιξε το παράθυρο και είδε τη θάλασσα που έλαμπε κάτω από τον ήλιο τα παιδιά έπαιζαν στην αυλή"
    ),
    "german": _language(
        "Der alte Gärtner öffnet jeden Morgen das Tor und gießt die Rosen während seine Nachbarin am Fenster sitzt und Briefe schreibt"
    ),
    "turkish": _language(
        "Sabah erkenden çarşıya giden yaşlı adam taze ekmek aldı sonra komşusuyla uzun uzun konuşup eve döndü çocuklar okuldan geldi"
    ),
}


# Code and data


def sql_dump(rng: Rng) -> str:
    head = "DROP TABLE IF EXISTS `customers`;\nCREATE TABLE `customers` (\n  `id` int NOT NULL,\n  `name` varchar(90) DEFAULT NULL\n);\n"
    rows = ",\n".join(
        f"({row},'{rng.choice(NAMES)} {rng.choice(NOUNS)}','{rng.choice(CITIES)}',NULL,NULL,1,'active')"
        for row in range(90)
    )
    return head + "INSERT INTO `customers` VALUES\n" + rows + ";\n"


def sql_migrations(rng: Rng) -> str:
    return _lines(
        70,
        lambda row: f"ALTER TABLE {rng.choice(NOUNS)}s ADD COLUMN {rng.choice(KINDS)}_{row} VARCHAR(255) DEFAULT NULL;",
    )


def css(rng: Rng) -> str:
    return "".join(
        f".{rng.choice(NOUNS)}-{rng.choice(KINDS)} {{\n  display: flex;\n  align-items: center;\n  justify-content: center;\n"
        f"  margin: 0 auto;\n  padding: {rng.randrange(40)}px;\n  color: #{rng.randrange(16**6):06x};\n}}\n\n"
        for _ in range(40)
    )


def utility_css(rng: Rng) -> str:
    return _lines(90, lambda row: f".mt-{row} {{ margin-top: {row * 4}px !important; }}")


def html_table(rng: Rng) -> str:
    return "<table>\n" + "".join(
        f"  <tr>\n    <td>{rng.choice(NAMES)}</td>\n    <td>{rng.randrange(99)}</td>\n    <td></td>\n    <td></td>\n  </tr>\n"
        for _ in range(60)
    )


def empty_html_grid(rng: Rng) -> str:
    return '<div class="grid">\n' + '  <div class="cell"></div>\n' * rng.choice([9, 16, 25]) + "</div>\n"


def svg(rng: Rng) -> str:
    return "".join(
        f'  <path d="M{rng.randrange(99)} {rng.randrange(99)}l{rng.random():.2f}-{rng.random():.2f}c0 0 1.5-{rng.random():.2f} 2 0z" '
        f'fill="none" stroke="currentColor" stroke-width="2" stroke-linecap="round"/>\n'
        for _ in range(60)
    )


def xml_settings(rng: Rng) -> str:
    return "".join(
        f'    <event name="jdk.{rng.choice(NOUNS)}{row}">\n      <setting name="enabled">false</setting>\n'
        '      <setting name="stackTrace">true</setting>\n      <setting name="threshold">20 ms</setting>\n    </event>\n\n'
        for row in range(50)
    )


def toml(rng: Rng) -> str:
    return "".join(
        f'[[package]]\nname = "{rng.choice(NOUNS)}-{row}"\nversion = "{rng.randrange(9)}.{rng.randrange(9)}.0"\nsource = "registry"\n\n'
        for row in range(60)
    )


def jsonl_events(rng: Rng) -> str:
    return _lines(
        80,
        lambda row: json.dumps(
            {"event": "page_view", "user": rng.choice(NAMES), "n": row, "ok": True, "tags": [], "extra": None}
        ),
    )


def minified_js(rng: Rng) -> str:
    return (
        "!function(e,t){"
        + "".join(
            f'Object.defineProperty(t,"{rng.choice(NOUNS)}{row}",{{enumerable:!0,get:function(){{return {rng.choice("abcdef")}.{rng.choice(NOUNS)}}}}});'
            for row in range(60)
        )
        + "}(this,exports);\n"
    )


def json_in_a_string(rng: Rng) -> str:
    fields = (
        '\\"'
        + rng.choice(NOUNS)
        + str(row)
        + '\\":{\\"type\\":\\"string\\",\\"format\\":\\"text\\",\\"nullable\\":true}'
        for row in range(60)
    )
    return '{"schema": "{' + ",".join(fields) + '}"}\n'


def sourcemap(rng: Rng) -> str:
    return (
        '{"sources":['
        + ",".join(
            f'"webpack://application/./src/localization/messages/{rng.choice(NOUNS)}.{row}.json"' for row in range(60)
        )
        + "]}\n"
    )


def protobuf_text(rng: Rng) -> str:
    return "".join(
        f'entry {{\n  key: "{rng.choice(NOUNS)}{row}"\n  value {{\n    kind: KIND_STRING\n    required: true\n  }}\n}}\n'
        for row in range(60)
    )


def terraform(rng: Rng) -> str:
    return "".join(
        f'resource "aws_s3_bucket" "{noun}_{row}" {{\n  bucket = "company-production-{noun}"\n  acl    = "private"\n\n  versioning {{\n    enabled = true\n  }}\n\n'
        f'  tags = {{\n    Environment = "production"\n    ManagedBy   = "terraform"\n  }}\n}}\n\n'
        for row, noun in enumerate(rng.sample(NOUNS, 24))
    )


def graphql(rng: Rng) -> str:
    return "".join(
        f"type {noun.title()} {{\n  id: ID!\n  name: String!\n  createdAt: DateTime!\n  updatedAt: DateTime!\n  {rng.choice(KINDS)}: Boolean\n}}\n\n"
        for noun in rng.sample(NOUNS, 30)
    )


def makefile(rng: Rng) -> str:
    return "".join(
        f"{noun}.o: {noun}.c {noun}.h common.h\n\t$(CC) $(CFLAGS) -c -o $@ $<\n\n" for noun in rng.sample(NOUNS, 40)
    )


def unified_diff(rng: Rng) -> str:
    return "".join(
        f"diff --git a/src/{noun}.py b/src/{noun}.py\nindex {rng.randrange(16**7):07x}..{rng.randrange(16**7):07x} 100644\n--- a/src/{noun}.py\n+++ b/src/{noun}.py\n"
        f"@@ -1,4 +1,5 @@\n import os\n import sys\n-from old.package import {noun}\n+from new.package import {noun}\n+from new.package import helpers\n"
        for noun in rng.sample(NOUNS, 30)
    )


def stack_trace(rng: Rng) -> str:
    depth = rng.randint(30, 60)
    frames = _lines(
        depth,
        lambda row: (
            f"    at com.example.shop.{rng.choice(NOUNS).title()}Service.handle{rng.choice(NOUNS).title()}(Service.java:{rng.randrange(900)})"
        ),
    )
    return "java.lang.IllegalStateException: not ready\n" + frames


def recursion_trace(rng: Rng) -> str:
    frame = '  File "/srv/app/tree.py", line 41, in walk\n    return self.walk(node.left) + self.walk(node.right)\n'
    return (
        "Traceback (most recent call last):\n"
        + frame * 3
        + "  [Previous line repeated 993 more times]\nRecursionError: maximum recursion depth exceeded\n"
    )


def pytest_output(rng: Rng) -> str:
    return _lines(
        70,
        lambda row: (
            f"tests/unit/test_{rng.choice(NOUNS)}.py::test_{rng.choice(VERBS)}_{rng.choice(NOUNS)}_{row} PASSED [{row * 100 // 70:3}%]"
        ),
    )


def jtreg_output(rng: Rng) -> str:
    return _lines(
        60,
        lambda row: (
            f"Passed: com/sun/crypto/provider/Cipher/AEAD/{rng.choice(NOUNS).title()}{rng.choice(KINDS).title()}Test.java"
        ),
    )


def compiler_warnings(rng: Rng) -> str:
    return "".join(
        f"src/{rng.choice(NOUNS)}.c:{rng.randrange(999)}:{rng.randrange(80)}: warning: unused variable '{rng.choice(NOUNS)}' [-Wunused-variable]\n"
        for _ in range(60)
    )


def git_log(rng: Rng) -> str:
    return "".join(
        f"commit {rng.randrange(16**40):040x}\nAuthor: {rng.choice(NAMES)} <dev@example.com>\nDate:   Mon May {rng.randrange(1, 28)} 10:{rng.randrange(60):02}:00 2024 +0200\n\n"
        f"    {sentence(rng)}\n\n"
        for _ in range(40)
    )


def git_status(rng: Rng) -> str:
    return _lines(
        50,
        lambda row: f"modified:   packages/application/src/components/{rng.choice(NOUNS)}/{rng.choice(KINDS)}{row}.tsx",
    )


def npm_output(rng: Rng) -> str:
    return _lines(
        40,
        lambda row: (
            f"npm warn deprecated {rng.choice(NOUNS)}@{row}.0.1: This version is no longer supported, please upgrade"
        ),
    )


def pip_output(rng: Rng) -> str:
    return _lines(
        50,
        lambda row: (
            f"Requirement already satisfied: {rng.choice(NOUNS)}>={row}.0 in /usr/lib/python3/dist-packages (from app)"
        ),
    )


def progress(rng: Rng) -> str:
    return _lines(
        50,
        lambda row: (
            f"Downloading model weights: {row * 2:3}% complete, {row * 37.5:.1f} MB of 1875.0 MB received so far"
        ),
    )


def heartbeats(rng: Rng) -> str:
    return _lines(
        36,
        lambda row: (
            f"Heartbeat at 12:{row:02}:{rng.randrange(60):02}: worker alive, queue length {rng.randrange(9)}, no error was seen"
        ),
    )


def worker_log(rng: Rng) -> str:
    return _lines(
        60,
        lambda row: (
            f"Worker {rng.randrange(8)} finished the job for customer {rng.choice(NAMES)} and returned to the pool of idle workers"
        ),
    )


def syslog(rng: Rng) -> str:
    return _lines(
        60,
        lambda row: (
            f"May  2 10:{row:02}:{rng.randrange(60):02} host sshd[{rng.randrange(9999)}]: Failed password for invalid user {rng.choice(NAMES)} from 10.0.0.{rng.randrange(256)}"
        ),
    )


def c_header(rng: Rng) -> str:
    return _lines(
        60,
        lambda row: (
            f"extern __float128 {rng.choice(NOUNS)}{row}q (__float128) __library_throw __attribute__ ((const));"
        ),
    )


def c_tuning(rng: Rng) -> str:
    return "".join(
        f"template <class KeyT, class AccumT>\nstruct sm{rng.randrange(60, 100)}_tuning<KeyT, AccumT, primitive_op::yes, key_size::_{row}>\n{{\n"
        f"  static constexpr int threads = {rng.randrange(900)};\n  static constexpr int items = {rng.randrange(30)};\n"
        "  static constexpr BlockLoadAlgorithm load_algorithm = BLOCK_LOAD_WARP_TRANSPOSE;\n};\n\n"
        for row in range(30)
    )


def python_calls(rng: Rng) -> str:
    return _lines(
        60,
        lambda row: (
            f"registry.register('{rng.choice(NOUNS)}{row}', default='{rng.choice(KINDS)}', type='string', required=True)"
        ),
    )


def rust_matches(rng: Rng) -> str:
    return (
        "fn name(kind: Kind) -> &'static str {\n    match kind {\n"
        + _lines(60, lambda row: f'        Kind::{rng.choice(NOUNS).title()}{row} => "{rng.choice(NOUNS)}",')
        + "    }\n}\n"
    )


def java_accessors(rng: Rng) -> str:
    return "".join(
        f"    public String get{noun.title()}() {{\n        return this.{noun};\n    }}\n\n    public void set{noun.title()}(String {noun}) {{\n        this.{noun} = {noun};\n    }}\n\n"
        for noun in rng.sample(NOUNS, 36)
    )


def licence_headers(rng: Rng) -> str:
    licence = (
        '# Licensed under the Apache License, Version 2.0 (the "License"); you may not use this file\n# except in compliance with the License. You may obtain a copy of the License at\n'
        "#     http://www.apache.org/licenses/LICENSE-2.0\n# Unless required by applicable law or agreed to in writing, software is distributed on an\n"
        '# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.\n\n'
    )
    return "".join(
        f"==> src/{noun}.py <==\n{licence}def {noun}() -> None:\n    print('{rng.choice(KINDS)} {rng.choice(NOUNS)}')\n\n"
        for noun in rng.sample(NOUNS, 8)
    )


def assembly(rng: Rng) -> str:
    registers = ["rax", "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9"]
    return _lines(
        120,
        lambda row: (
            f"    {rng.choice(['mov', 'add', 'xor', 'cmp', 'lea'])}    {rng.choice(registers)}, qword ptr [{rng.choice(registers)} + {rng.randrange(99)}]"
        ),
    )


def nops(rng: Rng) -> str:
    return "shellcode:\n" + "    nop\n" * rng.randint(16, 30) + "    ret\n"


def latex_table(rng: Rng) -> str:
    return (
        "\\begin{tabular}{lrrr}\n"
        + _lines(60, lambda row: f"{rng.choice(NAMES)} & {rng.random():.3f} & {rng.random():.3f} & --- \\\\ \\hline")
        + "\\end{tabular}\n"
    )


def regex_list(rng: Rng) -> str:
    return _lines(
        40,
        lambda row: f"^(?:https?://)?(?:www\\.)?{rng.choice(NOUNS)}\\.(?:com|org|net)/[A-Za-z0-9_-]{{{row}}}(?:/.*)?$",
    )


def url_list(rng: Rng) -> str:
    return _lines(
        70,
        lambda row: (
            f"https://www.example.com/archive/documents/{rng.randrange(1990, 2024)}/{rng.choice(NOUNS)}-{rng.choice(KINDS)}-{row}.html"
        ),
    )


def uuids(rng: Rng) -> str:
    return _lines(90, lambda row: str(uuid.UUID(int=rng.getrandbits(128))))


def base64_blob(rng: Rng) -> str:
    return base64.b64encode(rng.randbytes(2500) + b"\0" * 60 + rng.randbytes(500)).decode() + "\n"


def hexdump(rng: Rng) -> str:
    return _lines(
        90,
        lambda row: (
            f"{row * 16:08x}  " + " ".join(f"{rng.choice([0, 0, 255, rng.randrange(256)]):02x}" for _ in range(16))
        ),
    )


def csv_sensor(rng: Rng) -> str:
    out = io.StringIO()
    csv.writer(out).writerows(
        [
            f"2024-05-01T{row // 60:02}:{row % 60:02}:00Z",
            "sensor-1",
            "temperature",
            f"{20 + math.sin(row):.2f}",
            "C",
            "ok",
        ]
        for row in range(100)
    )
    return out.getvalue()


def anova_data(rng: Rng) -> str:
    value = rng.randrange(10, 99)
    return "".join(
        f"           {group}         {value}.{1 + row % 2 * 2}\n" for group in range(1, 10) for row in range(21)
    )


def lookup_table(rng: Rng) -> str:
    return (
        "table = [\n"
        + _lines(40, lambda row: "    " + ", ".join(rng.choices("000012", k=24)) + ",")
        + "]\n"
        + "0, " * 44
        + "0\n"
    )


def zero_matrix(rng: Rng) -> str:
    return (
        "grid = [\n"
        + "    [0, 0, 0, 0, 0, 0, 0, 0, 0],\n" * 9
        + "]\n\nmaze = [\n"
        + "".join("    " + json.dumps([rng.randint(0, 1) for _ in range(9)]) + ",\n" for _ in range(30))
        + "]\n"
    )


def floats(rng: Rng) -> str:
    return "[" + ", ".join(f"{rng.gauss(0, 1):.12f}" for _ in range(240)) + "]\n"


def primes(rng: Rng) -> str:
    return ", ".join(str(n) for n in range(2, 3500) if all(n % d for d in range(2, math.isqrt(n) + 1))) + "\n"


def counting(rng: Rng) -> str:
    return ", ".join(map(str, range(1, 900))) + "\n"


def dns_zone(rng: Rng) -> str:
    return _lines(
        60,
        lambda row: (
            f"{rng.choice(NOUNS)}{row}.example.com.   3600   IN   A   192.168.{rng.randrange(9)}.{rng.randrange(256)}"
        ),
    )


def mermaid(rng: Rng) -> str:
    return "sequenceDiagram\n" + _lines(
        60, lambda row: f"    {rng.choice(NAMES)}->>{rng.choice(NAMES)}: {rng.choice(VERBS)} the {rng.choice(NOUNS)}"
    )


def graphviz(rng: Rng) -> str:
    return (
        "digraph {\n"
        + _lines(
            70,
            lambda row: (
                f'    {rng.choice(NOUNS)} -> {rng.choice(NOUNS)} [style=dashed, color="gray", label="{rng.choice(VERBS)}"];'
            ),
        )
        + "}\n"
    )


def records(rng: Rng) -> str:
    return "".join(
        f"Suite: {noun}\nRepositoryType: deb\nBaseURI: http://packages.example.org/{noun}/\nMatchURI: packages.example.org\nDescription: {noun.title()} edition\n"
        "Component: main\nCompDescription: Officially supported software\nComponent: contrib\nCompDescription: Community-maintained software\n\n"
        for noun in rng.sample(NOUNS, 14)
    )


def help_text(rng: Rng) -> str:
    return _lines(
        50,
        lambda row: (
            f"  --{rng.choice(KINDS)}-{rng.choice(NOUNS)} VALUE   Set the {rng.choice(NOUNS)} to VALUE (default: none)"
        ),
    )


# Language that repeats


def green_bottles(rng: Rng) -> str:
    return "".join(
        f"{left} green bottles hanging on the wall,\n{left} green bottles hanging on the wall,\nAnd if one green bottle should accidentally fall,\n"
        f"There'll be {left - 1} green bottles hanging on the wall.\n\n"
        for left in range(rng.randint(10, 16), 0, -1)
    )


def house_that_jack_built(rng: Rng) -> str:
    parts = [
        "the house",
        "the malt",
        "the rat",
        "the cat",
        "the dog",
        "the cow with the crumpled horn",
        "the maiden all forlorn",
        "the man all tattered and torn",
    ]
    does = [
        "that Jack built",
        "that lay in",
        "that ate",
        "that killed",
        "that worried",
        "that tossed",
        "that milked",
        "that kissed",
    ]
    out = []
    for upto in range(len(parts)):
        lines = [f"This is {parts[upto]}"] + [f"{does[step]} {parts[step - 1]}" for step in range(upto, 0, -1)]
        out.append("\n".join(lines) + " that Jack built.\n\n")
    return "".join(out)


def refrain_between_verses(rng: Rng) -> str:
    refrain = "And it's no, nay, never,\nNo, nay, never, no more,\nWill I play the wild rover,\nNo, never, no more.\n\n"
    return "".join("".join(f"{sentence(rng)}\n" for _ in range(4)) + "\n" + refrain for _ in range(rng.randint(6, 9)))


def refrain_till_it_fades(rng: Rng) -> str:
    line = rng.choice(
        [
            "Row, row, row your boat, gently down the stream,",
            "Rise up, my love, the night is nearly over,",
            "Let the river carry us home tonight,",
        ]
    )
    return prose(rng, 600) + "\n\n" + f"{line}\n" * rng.randint(4, 8) + "\n" + prose(rng, 600)


def refrain_quoted(rng: Rng) -> str:
    line = rng.choice(
        [
            "Hallelujah, hallelujah, hallelujah!  ",
            "La la la la, la la la, hey brother!  ",
            "Ring the bell (ring it!) ring the bell!  ",
        ]
    )
    return "The crowd went on singing:\n\n> " + line * rng.randint(10, 18) + "\n\nThen it was quiet.\n"


def saints(rng: Rng) -> str:
    return _lines(60, lambda row: f"Saint {rng.choice(NAMES)} of {rng.choice(CITIES)}, pray for us.")


def intercessions(rng: Rng) -> str:
    return (
        " ".join(
            f"For {rng.choice(NAMES)} and the {rng.choice(NOUNS)}, we pray to the Lord: Lord, hear our prayer and let our cry come."
            for _ in range(14)
        )
        + "\n"
    )


def blessings(rng: Rng) -> str:
    return _lines(
        15,
        lambda row: (
            f"Blessed are the {rng.choice(KINDS)}, for they shall see the {rng.choice(NOUNS)} of {rng.choice(CITIES)}.\n"
        ),
    )


def rosary(rng: Rng) -> str:
    hail = "Hail Mary, full of grace, the Lord is with thee.\nBlessed art thou among women,\nand blessed is the fruit of thy womb.\n\n"
    return "".join(
        f"The {noun} mystery\n\nOur Father, who art in heaven, hallowed be thy name.\n\n" + hail * 3
        for noun in rng.sample(NOUNS, 4)
    )


def anaphora(rng: Rng) -> str:
    return " ".join(f"I dream of a day when {sentence(rng)[0].lower()}{sentence(rng)[1:]}" for _ in range(24)) + "\n"


def villanelle(rng: Rng) -> str:
    first, last = sentence(rng), sentence(rng)
    return "".join(
        f"{first if row % 2 else last}\n{sentence(rng)}\n{last if row % 2 else first}\n\n" for row in range(9)
    )


def ghazal(rng: Rng) -> str:
    return _lines(
        24,
        lambda row: (
            f"The {rng.choice(KINDS)} {rng.choice(NOUNS)} {rng.choice(VERBS)} what {rng.choice(NAMES)} said, tonight, my friend, tonight.\n"
        ),
    )


def enumerated_duties(rng: Rng) -> str:
    return "".join(
        f"({chr(97 + row)}) to take all reasonable steps to ensure that the {rng.choice(KINDS)} {rng.choice(NOUNS)} {rng.choice(VERBS)} the {rng.choice(NOUNS)};\n"
        for row in range(26)
    )


def whereas(rng: Rng) -> str:
    return (
        "".join(
            f"WHEREAS, {sentence(rng)} and it is in the best interest of the Council that the same be recorded;\n\n"
            for _ in range(18)
        )
        + "NOW, THEREFORE, BE IT RESOLVED.\n"
    )


def exam(rng: Rng) -> str:
    return "".join(
        f"Question {row}. Which of the following statements about the {rng.choice(NOUNS)} is correct?\nA. {sentence(rng)}\nB. {sentence(rng)}\nC. {sentence(rng)}\nD. None of the above\n\n"
        for row in range(1, 25)
    )


def true_or_false(rng: Rng) -> str:
    return "".join(f"{row}. {sentence(rng)}\nTrue / False\n\n" for row in range(1, 40))


def exercises(rng: Rng) -> str:
    return "".join(
        f"{row}. Calculate the area of a rectangle with a length of {rng.randrange(99)} cm and a width of {rng.randrange(99)} cm.\n"
        for row in range(1, 41)
    )


def fill_in(rng: Rng) -> str:
    return (
        "".join(f"{row}. The {rng.choice(NOUNS)} ____________ the {rng.choice(NOUNS)}.\n\n" for row in range(1, 40))
        + "Notes:\n\n"
        + ("_" * 40 + "\n\n") * 14
    )


def mail_merge(rng: Rng) -> str:
    return "".join(
        f"Dear {rng.choice(NAMES)},\n\nthank you for your order of the {rng.choice(KINDS)} {rng.choice(NOUNS)}. It will be sent to {rng.choice(CITIES)} within three days.\n\n"
        f"{sentence(rng)} {sentence(rng)}\n\nKind regards,\nYour team\n\n---\n\n"
        for _ in range(12)
    )


def short_letters(rng: Rng) -> str:
    """One letter for some people, the same but for name and place."""
    body = "we would like to invite you to our yearly meeting. There will be a talk about the new workshop, and coffee and cake afterwards. Please let us know until the end of the month whether you can come."
    return "".join(
        f"Dear {name},\n\n{body}\n\nWe hope to see you in {rng.choice(CITIES)}.\n\n" for name in rng.sample(NAMES, 5)
    )


def letters(rng: Rng) -> str:
    """One letter for fifteen people, none of whom it is about."""
    body = " ".join(sentence(rng) for _ in range(rng.randint(3, 10)))
    people = [name for name in rng.sample(NAMES, len(NAMES)) if name not in body][:15]
    return "".join(
        f"Dear {name},\n\n{body}\n\nWe hope to see you in {rng.choice(CITIES)}.\n\nKind regards,\nYour team\n\n"
        for name in people
    )


def reviews(rng: Rng) -> str:
    return "".join(
        f"**{rng.choice(NAMES)}** rated it {rng.randint(1, 5)} out of 5 stars\n\n{sentence(rng)} {sentence(rng)}\n\nWas this review helpful? Yes / No\n\n"
        for _ in range(24)
    )


def interview(rng: Rng) -> str:
    return "".join(
        f"INTERVIEWER: {sentence(rng)[:-1]}?\n\n{NAMES[0].upper()}: Well, to be honest, I think that {sentence(rng)} {sentence(rng)}\n\n"
        for _ in range(24)
    )


def knock_knock(rng: Rng) -> str:
    return "".join(
        f"Knock, knock.\nWho's there?\n{noun.title()}.\n{noun.title()} who?\n{sentence(rng)}\n\n"
        for noun in rng.sample(NOUNS, 20)
    )


def steps(rng: Rng) -> str:
    return "".join(
        f"{row}. Click the **{rng.choice(KINDS)} {rng.choice(NOUNS)}** button in the upper right corner and wait until the {rng.choice(NOUNS)} opens.\n"
        for row in range(1, 50)
    )


def bullets_alike(rng: Rng) -> str:
    return "".join(
        f"- You should be able to {rng.choice(VERBS)[:-1]} the {rng.choice(KINDS)} {rng.choice(NOUNS)}\n"
        for _ in range(60)
    )


def user_stories(rng: Rng) -> str:
    return _lines(
        40,
        lambda row: (
            f"As a {rng.choice(KINDS)} user, I want to be able to see the {rng.choice(NOUNS)}, so that the {rng.choice(NOUNS)} {rng.choice(VERBS)} it."
        ),
    )


def gherkin(rng: Rng) -> str:
    return "".join(
        f"  Scenario: the {rng.choice(KINDS)} {rng.choice(NOUNS)}\n    Given the user is logged in as administrator\n    And the shop has {row} articles\n"
        f"    When the user opens the {rng.choice(NOUNS)}\n    Then the page shows the {rng.choice(NOUNS)}\n\n"
        for row in range(30)
    )


def checklist(rng: Rng) -> str:
    return "".join(
        f"- [{rng.choice('x ')}] Update the documentation of the {rng.choice(KINDS)} {rng.choice(NOUNS)} module\n"
        for _ in range(50)
    )


def acceptance(rng: Rng) -> str:
    return "".join(
        f"### {noun.title()}\n\n- [ ] Unit tests are written\n- [ ] Documentation is updated\n- [ ] Reviewed by two people\n- [ ] {sentence(rng)}\n\n"
        for noun in rng.sample(NOUNS, 20)
    )


def glossary(rng: Rng) -> str:
    return "".join(f"**{noun.title()}**: {sentence(rng)}\n\n" for noun in rng.sample(NOUNS, 40))


def conjugations(rng: Rng) -> str:
    return "".join(
        f"I {verb}ed, you {verb}ed, he {verb}ed, she {verb}ed, it {verb}ed, we {verb}ed, you {verb}ed, they {verb}ed.\n"
        for verb in (v.rstrip("s") for v in VERBS)
    )


def vocabulary(rng: Rng) -> str:
    return _lines(80, lambda row: f"{rng.choice(NOUNS)} - {rng.choice(KINDS)} - {rng.choice(WAYS)}")


def phone_list(rng: Rng) -> str:
    return _lines(60, lambda row: f"{rng.choice(NAMES):<12} {rng.choice(CITIES):<10} +31 20 {rng.randrange(10**7):07}")


def calendar(rng: Rng) -> str:
    months = [
        "January",
        "February",
        "March",
        "April",
        "May",
        "June",
        "July",
        "August",
        "September",
        "October",
        "November",
        "December",
    ]
    return "".join(
        f"{month:^20}\nMo Tu We Th Fr Sa Su\n"
        + "\n".join(" ".join(f"{day:2}" for day in range(week, min(week + 7, 31))) for week in range(1, 31, 7))
        + "\n\n"
        for month in months
    )


def opening_hours(rng: Rng) -> str:
    return "".join(
        f"**{city}**\n\n"
        + _lines(
            7,
            lambda row: (
                f"{['Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday', 'Sunday'][row]}: 9:00 - 17:00"
            ),
        )
        + "\n"
        for city in CITIES[:8]
    )


def timetable(rng: Rng) -> str:
    return "".join(
        f"| {hour:02}:{minute:02} | {rng.choice(CITIES)} | platform {rng.randrange(9)} | on time |\n"
        for hour in range(6, 22)
        for minute in (0, 15, 30, 45)
    )


def truth_table(rng: Rng) -> str:
    return (
        "| A | B | C | D | E | result |\n|---|---|---|---|---|---|\n"
        + "".join(
            "| " + " | ".join("TF"[row >> bit & 1] for bit in range(5)) + f" | {'TF'[row.bit_count() % 2]} |\n"
            for row in range(32)
        )
        * 2
    )


def times_table(rng: Rng) -> str:
    return "".join("\t".join(f"{a * b}" for b in range(1, 21)) + "\n" for a in range(1, 21)) + "".join(
        f"{a} times {b} is {a * b}.\n" for a in range(1, 11) for b in range(1, 11)
    )


def blank_form(rng: Rng) -> str:
    return (
        "| Date | Hours | Signature of the employee |\n|---|---|---|\n"
        + "|      |       |                           |\n" * rng.randint(14, 31)
    )


def score_sheet(rng: Rng) -> str:
    return "".join(f"Round {row}:  Player A ______  Player B ______  Total ______\n" for row in range(1, 25))


def chess_game(rng: Rng) -> str:
    return (
        " ".join(
            f"{row}. {rng.choice('NBRQK')}{rng.choice('abcdefgh')}{rng.randint(1, 8)} {rng.choice('NBRQK')}{rng.choice('abcdefgh')}{rng.randint(1, 8)}"
            for row in range(1, 200)
        )
        + "\n"
    )


def chess_diagrams(rng: Rng) -> str:
    return "\n".join(
        "".join("".join(rng.choices("........pPnNbBrRqQkK", k=8)) + "\n" for _ in range(8)) for _ in range(12)
    )


def abc_music(rng: Rng) -> str:
    bars = ["".join(rng.choice(["A2", "B2", "cd", "e2", "GA", "B3"]) for _ in range(4)) + "|" for _ in range(8)]
    return "X:1\nT:The tune\nM:6/8\nK:D\n" + "\n".join("".join(rng.choices(bars, k=4)) for _ in range(20)) + "\n"


def chords(rng: Rng) -> str:
    return (
        "\n".join("| " + " | ".join(rng.choices(["C", "G", "Am", "F", "Em", "Dm"], k=4)) + " |" for _ in range(50))
        + "\n"
    )


def knitting(rng: Rng) -> str:
    return "".join(
        f"Row {row}: K2, P2, K{rng.randrange(2, 9)}, P{rng.randrange(2, 9)}, K2, P2, repeat from * to the end of the row.\n"
        for row in range(1, 26)
    )


def squats(rng: Rng) -> str:
    return "".join(
        f"**Day {row}**: {rng.randrange(9, 30)} squats, {rng.randrange(9, 30)} push-ups, {rng.randrange(9, 30)} lunges, then rest for one minute.\n"
        for row in range(1, 31)
    )


def genome(rng: Rng) -> str:
    return (
        ">chr1\n"
        + "".join("".join(rng.choices("ACGT", k=60)) + "\n" for _ in range(50))
        + "A" * 24
        + "TTAGGG" * 12
        + "\n"
    )


def protein(rng: Rng) -> str:
    return ">sp|P1\n" + "".join("".join(rng.choices("ACDEFGHIKLMNPQRSTVWY", k=60)) + "\n" for _ in range(50))


def ascii_art(rng: Rng) -> str:
    rows = [
        "      /\\      /\\      /\\      /\\   ",
        "     /  \\    /  \\    /  \\    /  \\  ",
        "    /____\\  /____\\  /____\\  /____\\ ",
    ]
    return "".join(rng.choice(rows) + "\n" for _ in range(24)) + "~" * 70 + "\n" + "^" * 70 + "\n"


def box_drawing(rng: Rng) -> str:
    width = rng.randint(20, 50)
    box = (
        "┌"
        + "─" * width
        + "┐\n"
        + "".join(f"│ {rng.choice(NOUNS):<{width - 1}}│\n" for _ in range(4))
        + "└"
        + "─" * width
        + "┘\n"
        + " " * (width // 2)
        + "│\n"
    )
    return "".join(box.replace(rng.choice(NOUNS), rng.choice(NOUNS)) for _ in range(9))


def emoji_rows(rng: Rng) -> str:
    return (
        "".join(face * rng.randint(8, 30) + "\n" for face in rng.sample("🎉🚀😀🔥💡🌍🐍🍎⭐🎈🎵🧩", 10))
        + "👏 " * 20
        + "\n"
    )


def game_of_life(rng: Rng) -> str:
    return "\n".join(
        f"Generation {turn}:\n" + "".join("".join(rng.choices(".....#", k=24)) + "\n" for _ in range(12))
        for turn in range(12)
    )


def laughing(rng: Rng) -> str:
    return f"Ha{'ha' * rng.randint(10, 50)}! N{'o' * rng.randint(20, 120)}! Zz{'z' * rng.randint(20, 100)}... {'very ' * rng.randint(5, 20)}good. {'!' * rng.randint(10, 90)}\n"


def lorem(rng: Rng) -> str:
    line = "Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor incididunt ut labore et dolore magna aliqua."
    return "".join(
        f"<section>\n  <h2>{rng.choice(NOUNS).title()}</h2>\n  <p>{line}</p>\n</section>\n"
        for _ in range(rng.randint(6, 10))
    )


def lorem_paragraphs(rng: Rng) -> str:
    return (
        "Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor incididunt ut labore. " * 4
        + prose(rng, 500)
    )


def pangrams(rng: Rng) -> str:
    return "Here is a test text:\n\n" + "The quick brown fox jumps over the lazy dog. " * 4 + "\n\n" + prose(rng, 500)


# Reasoning


def careful_thought(rng: Rng) -> str:
    starts = [
        "Wait, let me check that again.",
        "Hmm, is that right?",
        "Let me think about this differently.",
        "Wait, I should double-check.",
        "Actually, let me reconsider.",
    ]
    return "".join(f"{rng.choice(starts)} {sentence(rng)} {sentence(rng)} {sentence(rng)}\n\n" for _ in range(20))


def case_analysis(rng: Rng) -> str:
    return "".join(
        f"Case {row}: suppose that x = {row}. Then x^2 + {row}x = {row * row * 2}, which is {'greater' if row > 4 else 'less'} than {rng.randrange(99)}. "
        f"So this case {'is possible' if rng.random() < 0.5 else 'leads to a contradiction'}.\n\n"
        for row in range(1, 20)
    )


def trial_division(rng: Rng) -> str:
    n = rng.randrange(10_001, 40_001, 2)
    return "".join(
        f"{n} / {d} = {n / d:.3f}, so it is {'divisible' if n % d == 0 else 'not divisible'} by {d}.\n"
        for d in range(3, 99, 2)
    )


def binary_search(rng: Rng) -> str:
    low, high, out = 0, 2**22, []
    goal = rng.randrange(high)
    while low < high:
        middle = (low + high) // 2
        out.append(
            f"The middle of {low} and {high} is {middle}. Since the goal is {'greater, we look above' if goal > middle else 'not greater, we look below'} it.\n"
        )
        low, high = (middle + 1, high) if goal > middle else (low, middle)
    return "".join(out)


def graph_walk(rng: Rng) -> str:
    return "".join(
        f"Visit node {rng.choice(NOUNS)}: its neighbours are {', '.join(rng.sample(NOUNS, 3))}. Mark it as visited and add them to the queue.\n"
        for _ in range(30)
    )


def file_by_file(rng: Rng) -> str:
    return "".join(
        f"Now let me look at `src/{rng.choice(NOUNS)}_{rng.choice(KINDS)}.py`. {sentence(rng)} That looks fine.\n\n"
        for _ in range(24)
    )


def code_review(rng: Rng) -> str:
    return "".join(
        f"### `src/{noun}.py`\n\n{sentence(rng)} {sentence(rng)}\n\n```python\ndef {noun}(value: int) -> int:\n    return value + {row}\n```\n\n**Severity:** low\n\n"
        for row, noun in enumerate(rng.sample(NOUNS, 20))
    )


_MAKERS: tuple[Make, ...] = (
    prose, sql_dump, sql_migrations, css, utility_css, html_table, empty_html_grid, svg, xml_settings, toml, jsonl_events, minified_js, json_in_a_string, sourcemap,
    protobuf_text, terraform, graphql, makefile, unified_diff, stack_trace, recursion_trace, pytest_output, jtreg_output, compiler_warnings, git_log, git_status, npm_output,
    pip_output, progress, heartbeats, worker_log, syslog, c_header, c_tuning, python_calls, rust_matches, java_accessors, licence_headers, assembly, nops, latex_table, regex_list,
    url_list, uuids, base64_blob, hexdump, csv_sensor, anova_data, lookup_table, zero_matrix, floats, primes, counting, dns_zone, mermaid, graphviz, records, help_text,
    green_bottles, house_that_jack_built, refrain_between_verses, saints, intercessions, blessings, rosary, anaphora, villanelle, ghazal, enumerated_duties, whereas, exam,
    true_or_false, exercises, fill_in, mail_merge, reviews, interview, knock_knock, steps, bullets_alike, user_stories, gherkin, checklist, acceptance, glossary, conjugations,
    vocabulary, phone_list, calendar, opening_hours, timetable, truth_table, times_table, blank_form, score_sheet, chess_game, chess_diagrams, abc_music, chords, knitting, squats,
    genome, protein, ascii_art, box_drawing, emoji_rows, game_of_life, laughing, lorem, careful_thought, case_analysis, trial_division, binary_search, graph_walk, file_by_file,
    code_review,
)  # fmt: skip
BENIGN: dict[str, Make] = {**LANGUAGES, **{make.__name__: make for make in _MAKERS}}
BORDERLINE: dict[str, Make] = {
    make.__name__: make
    for make in (refrain_till_it_fades, refrain_quoted, short_letters, letters, lorem_paragraphs, pangrams)
}
"""Repeated on purpose, and a good deal: a nudge is right, a stop is not."""
