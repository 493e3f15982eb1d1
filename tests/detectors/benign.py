"""Texts that repeat and are no loops, of kinds the recorded runs hardly hold: songs, drawings,
logs, tables, data, code, other scripts.

Made, not copied (the songs are older than any copyright). Each is long enough for every rule to
have its say.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable

NAMES = [
    "Amara",
    "Bjorn",
    "Chen",
    "Dilek",
    "Eamon",
    "Farida",
    "Goran",
    "Hana",
    "Ines",
    "Jonas",
    "Katya",
    "Liu",
    "Marek",
    "Noor",
    "Odile",
]
PLACES = [
    "harbour",
    "north gate",
    "old mill",
    "station",
    "market",
    "library",
    "west bridge",
    "town hall",
    "quarry",
    "orchard",
]
THINGS = [
    "ledger",
    "lantern",
    "kettle",
    "ladder",
    "compass",
    "basket",
    "anvil",
    "mirror",
    "violin",
    "saddle",
    "anchor",
    "drum",
]
DOES = ["carries", "mends", "sells", "paints", "hides", "weighs", "borrows", "cleans", "counts", "finds"]


class Said:
    """Always the same words in the same order."""

    def __init__(self) -> None:
        self.rng = random.Random(20)

    def __getattr__(self, kind: str) -> str:
        return self.rng.choice({"who": NAMES, "where": PLACES, "what": THINGS, "does": DOES}[kind])


def access_log() -> str:
    rng = random.Random(20)
    agent = (
        "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0"
        " Safari/537.36"
    )
    return "".join(
        f"10.0.{rng.randrange(256)}.{rng.randrange(256)} - - [02/May/2024:10:{row // 60:02}:{row % 60:02} +0000] "
        f'"GET /api/v1/items/{rng.randrange(99999)} HTTP/1.1" 200 {rng.randrange(9999)} "https://shop.example.com/"'
        f' "{agent}"\n'
        for row in range(60)
    )


def service_log() -> str:
    """Five lines a request, the same five each time."""
    say = Said()
    rng = say.rng
    rows: list[str] = []
    for request in range(40):
        stamp, id = (
            f"2024-05-02 10:{request:02}:{rng.randrange(60):02},{rng.randrange(1000):03}",
            f"{rng.randrange(16**8):08x}",
        )
        rows += [
            f"{stamp} INFO  [http-nio-8080-exec-{request % 10}] c.e.shop.RequestFilter - Request started id={id}",
            (
                f"{stamp} DEBUG [http-nio-8080-exec-{request % 10}] c.e.shop.AuthService - Token accepted for user"
                f" {say.who}"
            ),
            (
                f"{stamp} INFO  [http-nio-8080-exec-{request % 10}] c.e.shop.OrderService - Loaded {rng.randrange(90)}"
                " orders"
            ),
            (
                f"{stamp} INFO  [http-nio-8080-exec-{request % 10}] c.e.shop.RequestFilter - Request finished id={id}"
                f" ms={rng.randrange(900)}"
            ),
        ]
    return "\n".join(rows) + "\n"


def installer_log() -> str:
    """Lines that start with a word."""
    say = Said()
    rng = say.rng
    return "".join(
        "Downloading"
        f" https://files.example.org/packages/{rng.randrange(16**10):010x}/{say.what}_{row}-py3-none-any.whl\nSuccessfully"
        f" installed {say.what}-{row}.{rng.randrange(9)}.{rng.randrange(20)}\n"
        for row in range(60)
    )


def worded_log() -> str:
    say = Said()
    rng = say.rng
    return "".join(
        f"INFO:app.worker:The request of {say.who} number {rng.randrange(99999)} was taken from the queue and handled\n"
        for _ in range(60)
    )


def csv_rows() -> str:
    say = Said()
    rng = say.rng
    rows = (
        f"{row},{say.who},{say.where},{say.what},{rng.randrange(90)},completed,standard delivery,EUR\n"
        for row in range(120)
    )
    return "order,customer,place,article,amount,state,shipping,currency\n" + "".join(rows)


def json_rows() -> str:
    say = Said()
    rng = say.rng
    return "".join(
        json.dumps({"type": "message", "role": "user", "state": "active", "name": say.who, "id": rng.randrange(10**6)})
        + "\n"
        for _ in range(80)
    )


def json_pretty() -> str:
    say = Said()
    rng = say.rng
    rows = [
        {
            "id": rng.randrange(10**6),
            "name": say.who,
            "attributes": {"enabled": True, "visible": True, "deleted": False, "parent": None},
            "permissions": ["read", "write"],
            "location": {"place": say.where, "country": "NL", "timezone": "Europe/Amsterdam"},
            "score": round(rng.random(), 6),
        }
        for _ in range(30)
    ]
    return json.dumps(rows, indent=2) + "\n"


def yaml_manifests() -> str:
    rng = random.Random(20)
    return "".join(
        f"---\napiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {thing}\n  namespace: production\n  labels:\n "
        f"   app: {thing}\nspec:\n  replicas: {rng.randrange(1, 9)}\n  selector:\n    matchLabels:\n      app:"
        f" {thing}\n  template:\n    metadata:\n      labels:\n        app: {thing}\n    spec:\n      containers:\n    "
        f"    - name: {thing}\n          image: registry.example.com/{thing}:{rng.randrange(9)}.{rng.randrange(20)}\n  "
        f"        ports:\n            - containerPort: {rng.randrange(1024, 9999)}\n          resources:\n           "
        " limits: {memory: 256Mi}\n"
        for thing in THINGS
    )


def html_cards() -> str:
    say = Said()
    rng = say.rng
    return "".join(
        '    <div class="card shadow mb-4">\n      <img class="card-img-top"'
        f' src="/img/{thing}-{rng.randrange(999)}.png" alt="{thing}">\n      <div class="card-body">\n        <h5'
        f' class="card-title">{thing.title()}</h5>\n        <p class="card-text">{say.who} {say.does} it at the'
        f' {say.where}.</p>\n        <a href="/shop/{thing}" class="btn btn-primary">Add to basket</a>\n      </div>\n '
        "   </div>\n"
        for thing in THINGS * 2
    )


def python_handlers() -> str:
    """Code without a fence: one handler after the other."""
    return "".join(
        f'@router.get("/{thing}s/{{id}}")\nasync def get_{thing}(id: int, session: Session = Depends(get_session)) ->'
        f" {thing.title()}:\n    {thing} = await session.get({thing.title()}, id)\n    if {thing} is None:\n       "
        f' raise HTTPException(status_code=404, detail="{thing.title()} not found")\n    return {thing}\n\n\n'
        for thing in THINGS * 2
    )


def go_errors() -> str:
    rng = random.Random(20)
    return "func load(path string) error {\n" + "".join(
        f"\t{thing}, err := read{thing.title()}(path, {rng.randrange(99)})\n\tif err != nil {{\n"
        f'\t\treturn fmt.Errorf("could not read {thing}: %w", err)\n\t}}\n\tlog.Printf("read %d bytes of {thing}",'
        f" len({thing}))\n"
        for thing in THINGS * 3
    )


def unit_tests() -> str:
    rng = random.Random(20)
    return (
        "```python\n"
        + "".join(
            f"    def test_{thing}_{row}(self):\n        result = self.client.post('/{thing}', json={{'amount':"
            f" {rng.randrange(999)}}})\n        self.assertEqual(result.status_code, 200)\n       "
            f" self.assertEqual(result.json()['sum'], {rng.randrange(9999)})\n\n"
            for row, thing in enumerate(THINGS * 3)
        )
        + "```\n"
    )


def sql_inserts() -> str:
    say = Said()
    rng = say.rng
    return "".join(
        "INSERT INTO orders (id, customer, article, amount, created_at) VALUES "
        f"({row}, '{say.who}', '{say.what}', {rng.randrange(99)}, '2024-05-{row % 28 + 1:02}');\n"
        for row in range(60)
    )


def markdown_table() -> str:
    say = Said()
    rows = (
        f"| {say.who:<10} | {say.does:<10} | {say.what:<10} | {say.where:<12} | yes      | delivered  |\n"
        for _ in range(80)
    )
    return (
        "| who        | does       | what       | where        | paid     | state      |\n|"
        + " --- |" * 6
        + "\n"
        + "".join(rows)
    )


def empty_form() -> str:
    return "| Date | Name | Signature |\n| --- | --- | --- |\n" + "|      |      |           |\n" * 10


def changelog() -> str:
    say = Said()
    rng = say.rng
    return "".join(
        f"## 2.{row}.0\n\n### Fixed\n\n- The {say.what} no longer {say.does} the {say.what} twice"
        f" (#{rng.randrange(9999)})\n- Thanks to {say.who} for the report\n\n### Changed\n\n- Dependencies were"
        " updated\n\n"
        for row in range(40)
    )


def questionnaire() -> str:
    say = Said()
    options = (
        "   a) Strongly agree\n   b) Agree\n   c) Neither agree nor disagree\n   d) Disagree\n   e) Strongly"
        " disagree\n\n"
    )
    return "".join(
        f"{row}. {say.who} {say.does} the {say.what} at the {say.where}, and I would do the same.\n{options}"
        for row in range(1, 25)
    )


def dialogue() -> str:
    say = Said()
    return "".join(
        f"**{say.who}:** Who {say.does} the {say.what}?\n\n**{say.who}:** I do not know. Ask at the {say.where}.\n\n"
        for _ in range(60)
    )


def recipe_steps() -> str:
    say = Said()
    return "".join(
        f"{row}. Take the {say.what} from the {say.where}, and let {say.who} see that it {say.does} well.\n"
        for row in range(1, 80)
    )


def bottles() -> str:
    return "".join(
        f"{left} bottles of beer on the wall, {left} bottles of beer.\n"
        f"Take one down and pass it around, {left - 1} bottles of beer on the wall.\n\n"
        for left in range(40, 10, -1)
    )


def twelve_days() -> str:
    gifts = [
        *(
            "a partridge in a pear tree",
            "two turtle doves",
            "three French hens",
            "four calling birds",
            "five gold rings",
        ),
        *(
            "six geese a-laying",
            "seven swans a-swimming",
            "eight maids a-milking",
            "nine ladies dancing",
            "ten lords a-leaping",
        ),
        *("eleven pipers piping", "twelve drummers drumming"),
    ]
    days = [
        "first",
        "second",
        "third",
        "fourth",
        "fifth",
        "sixth",
        "seventh",
        "eighth",
        "ninth",
        "tenth",
        "eleventh",
        "twelfth",
    ]
    return "".join(
        f"On the {day} day of Christmas my true love sent to me\n" + ",\n".join(reversed(gifts[: row + 1])) + ".\n\n"
        for row, day in enumerate(days)
    )


def old_macdonald() -> str:
    animals = [
        ("cow", "moo"),
        ("pig", "oink"),
        ("duck", "quack"),
        ("horse", "neigh"),
        ("lamb", "baa"),
        ("hen", "cluck"),
        ("dog", "woof"),
    ]
    return "".join(
        f"Old MacDonald had a farm, E-I-E-I-O,\nAnd on his farm he had a {animal}, E-I-E-I-O.\nWith a {sound}-{sound}"
        f" here and a {sound}-{sound} there,\nHere a {sound}, there a {sound}, everywhere a {sound}-{sound},\nOld"
        " MacDonald had a farm, E-I-E-I-O.\n\n"
        for animal, sound in animals
    )


def wheels_on_the_bus() -> str:
    verses = [
        "wheels on the bus go round and round",
        "wipers on the bus go swish swish swish",
        "horn on the bus goes beep beep beep",
    ]
    verses += [
        "doors on the bus go open and shut",
        "driver on the bus says move on back",
        "babies on the bus go wah wah wah",
    ]
    ending = {verse: verse.split(" go ")[-1].split(" goes ")[-1].split(" says ")[-1] for verse in verses}
    return "".join(
        f"The {verse},\n{ending[verse]}, {ending[verse]}.\nThe {verse},\nall through the town.\n\n" for verse in verses
    )


def chorus_song() -> str:
    say = Said()
    lines = ["Row on, row on, the tide is with us,", "row on, row on, the night is long,"]
    chorus = "\n".join([*lines, "and every oar shall find its brother,", "and every wave shall know our song.\n\n"])
    verses = "".join(
        "\n".join(f"{say.who} {say.does} the {say.what} by the {say.where}," for _ in range(4)) + "\n\n|"
        for _ in range(8)
    )
    return verses.replace("|", chorus)


def ascii_drawing() -> str:
    row = "  /\\  " * 9 + "\n" + " /  \\ " * 9 + "\n" + "/____\\" * 9 + "\n" + " |[]| " * 9 + "\n"
    return "```\n" + row * 3 + "=" * 54 + "\n" + "~" * 54 + "\n```\n"


def chess_boards() -> str:
    rng = random.Random(20)
    line = "  +---+---+---+---+---+---+---+---+\n"
    boards = (
        line + "".join("  | " + " | ".join(rng.choices("rnbqkp.PRNBQK", k=8)) + " |\n" + line for _ in range(8))
        for _ in range(5)
    )
    return "```\n" + "\n".join(boards) + "```\n"


def emoji_grid() -> str:
    rng = random.Random(20)
    return (
        "".join("".join(rng.choices("\U0001f7e9\U0001f7e8\u2b1b", k=5)) + "\n" for _ in range(36))
        + "\u2b50" * 40
        + "\n"
    )


def progress_bars() -> str:
    return "".join(
        f"Epoch {row}/50 [{'=' * (row * 3)}>{'.' * (150 - row * 3)}] - loss: {1 / row:.4f}\n" for row in range(1, 50)
    )


def comment_bars() -> str:
    return "".join(
        "#" * 120 + f"\n# Part {row}: the {thing}\n" + "#" * 120 + f"\nload({thing})\n\n"
        for row, thing in enumerate(THINGS)
    )


def shouting() -> str:
    return (
        "He cried N"
        + "O" * 90
        + "! And all of them: A"
        + "a" * 80
        + "rgh! Then he laughed: "
        + "ha" * 50
        + ". Silence"
        + "." * 90
        + "\n"
    )


def binary_and_hex() -> str:
    rng = random.Random(20)
    dump = (
        f"{row * 16:08x}  "
        + " ".join(f"{rng.choice([0, 0, 0, 255, rng.randrange(256)]):02x}" for _ in range(16))
        + "\n"
        for row in range(60)
    )
    return "".join(dump) + "0b" + "0" * 64 + "1" * 64 + "\n" + "0x" + "f" * 64 + "\n1" + "0" * 100 + "\n"


def long_division() -> str:
    return "1/7 = 0." + "142857" * 25 + "...\n1/3 = 0." + "3" * 100 + "...\n10^100 = 1" + "0" * 100 + "\n"


def genome() -> str:
    rng = random.Random(20)
    return "".join(rng.choices("ACGT", k=4000)) + "A" * 30 + "CAG" * 40 + "".join(rng.choices("ACGT", k=500)) + "\n"


def trace_of_a_sort() -> str:
    rng = random.Random(20)
    numbers = rng.sample(range(100), 9)
    out: list[str] = []
    for turn in range(8):
        for at in range(8 - turn):
            if numbers[at] > numbers[at + 1]:
                out.append(f"Compare {numbers[at]} and {numbers[at + 1]}: swap them. Now {numbers}\n")
                numbers[at], numbers[at + 1] = numbers[at + 1], numbers[at]
            else:
                out.append(f"Compare {numbers[at]} and {numbers[at + 1]}: leave them. Now {numbers}\n")
        out.append(f"End of pass {turn + 1}.\n\n")
    return "".join(out)


def hanoi() -> str:
    moves: list[str] = []

    def move(disks: int, a: str, b: str, c: str) -> None:
        if disks:
            move(disks - 1, a, c, b)
            moves.append(f"{len(moves) + 1}. Move disk {disks} from peg {a} to peg {c}.\n")
            move(disks - 1, b, a, c)

    move(7, "A", "B", "C")
    return "".join(moves)


def multiplication() -> str:
    return "".join("".join(f"{a} x {b} = {a * b}\n" for b in range(1, 13)) + "\n" for a in range(1, 13))


def product_descriptions() -> str:
    say = Said()
    rng = say.rng
    return "".join(
        f"### {thing.title()}\n\n**Price:** {rng.randrange(999)} EUR\n\n**RunOptions:** {say.who} {say.does} this"
        f" {thing} at the {say.where}, where {say.who} {say.does} the {say.what}.\n\n**Delivery:** within three working"
        " days\n\n"
        for thing in THINGS * 3
    )


def legal_clauses() -> str:
    say = Said()
    return "".join(
        f"{row}.1 The {say.what} shall be kept at the {say.where} by {say.who}. Unless otherwise agreed in writing, "
        f"nothing in this Agreement shall limit the right of {say.who} to the {say.what}, nor the duty of {say.who} "
        f"who {say.does} the {say.what} to answer for it before the {say.where}.\n\n"
        for row in range(1, 30)
    )


def arabic() -> str:
    rng = random.Random(20)
    words = ["الكتاب", "على", "الطاولة", "في", "البيت", "مع", "الولد", "والبنت", "قرأ", "كتب", "ذهب", "إلى", "السوق"]
    return ". ".join(" ".join(rng.choices(words, k=9)) for _ in range(90)) + ".\n"


def devanagari() -> str:
    rng = random.Random(20)
    words = ["राम", "ने", "किताब", "पढ़ी", "और", "सीता", "बाज़ार", "गई", "घर", "में", "पानी", "है"]
    return "\u0964 ".join(" ".join(rng.choices(words, k=9)) for _ in range(90)) + "\u0964\n"


def japanese() -> str:
    rng = random.Random(20)
    who, what = (
        ["\u79c1", "\u5f7c\u5973", "\u5148\u751f", "\u53cb\u9054", "\u732b"],
        ["\u672c", "\u6c34", "\u82b1", "\u9b5a", "\u8eca", "\u7d19"],
    )
    how = [
        "\u8aad\u307f\u307e\u3057\u305f",
        "\u8cb7\u3044\u307e\u3057\u305f",
        "\u898b\u307e\u3057\u305f",
        "\u63cf\u304d\u307e\u3057\u305f",
    ]
    return (
        "".join(
            f"{rng.choice(who)}\u306f{rng.choice(what)}\u3068{rng.choice(what)}\u3092{rng.choice(how)}\u3002"
            for _ in range(200)
        )
        + "\n"
    )


def services() -> str:
    """The same twelve lines for each; only names differ."""
    return "".join(
        f"apiVersion: v1\nkind: Service\nmetadata:\n  name: {thing}\nspec:\n  type: ClusterIP\n  selector:\n    app:"
        f" {thing}\n  ports:\n    - name: http\n      port: 80\n      targetPort: http\n      protocol: TCP\n---\n"
        for thing in THINGS * 3
    )


def build_files() -> str:
    return "".join(
        f"### {thing}\n\n```dockerfile\nFROM python:3.12-slim\nWORKDIR /app\nCOPY requirements.txt .\n"
        f'RUN pip install --no-cache-dir -r requirements.txt\nCOPY . .\nCMD ["python", "-m", "{thing}"]\n```\n\n'
        for thing in THINGS * 2
    )


def business_cards() -> str:
    say = Said()
    return "".join(
        f"BEGIN:VCARD\nVERSION:3.0\nN:{say.who};{say.who};;;\nORG:Example Company"
        f" Limited;\nTITLE:{say.what}\nTEL;TYPE=WORK,VOICE:+31 20"
        f" {say.rng.randrange(10**7):07}\nEMAIL;TYPE=PREF,INTERNET:{say.who}@example.com\nEND:VCARD\n"
        for _ in range(40)
    )


def subtitles() -> str:
    say = Said()
    return "".join(
        f"{row}\n00:{row // 20:02}:{row * 3 % 60:02},000 --> 00:{row // 20:02}:{row * 3 % 60 + 2:02},500\n"
        f"{say.who} {say.does} the {say.what}.\n\n"
        for row in range(1, 150)
    )


def minutes() -> str:
    say = Said()
    return "".join(
        f"### Item {row}\n\n**Presented by:** {say.who}\n\n**Discussion:** {say.who} {say.does} the {say.what} at the"
        f" {say.where}.\n\n**Decision:** The committee agreed to go on at the next meeting.\n\n**Action:** {say.who} to"
        " report back.\n\n"
        for row in range(30)
    )


def tasks() -> str:
    say = Said()
    return "".join(f"- [ ] Ask {say.who} whether the {say.what} at the {say.where} is ready\n" for _ in range(90))


def litany() -> str:
    say = Said()
    return "".join(
        f"Saint {name}, who {say.does} the {say.what},\nhave mercy on us and hear our prayer.\n\n" for name in NAMES * 3
    )


def worked_steps() -> str:
    """A count that gets on: every number is another one."""
    return "".join(
        f"After step {n}, the value of x is {n * n} and the value of y is {n * 7 + 3}. Their sum is"
        f" {n * n + n * 7 + 3}, which is {'odd' if n % 2 else 'even'}.\n"
        for n in range(1, 60)
    )


def training() -> str:
    rng = random.Random(20)
    return "".join(
        f"Epoch {row}/60: train loss {rng.random():.4f}, validation loss {rng.random():.4f}, validation accuracy"
        f" {rng.random():.4f}\n"
        for row in range(60)
    )


def guitar() -> str:
    rng = random.Random(20)
    bars = (
        "".join(f"{string}|{'-'.join(rng.choices('0235-----', k=28))}|\n" for string in "eBGDAE") for _ in range(12)
    )
    return "```\n" + "\n".join(bars) + "```\n"


def empty_boxes() -> str:
    box = (
        "\u250c"
        + "\u2500" * 40
        + "\u2510\n"
        + ("\u2502" + " " * 40 + "\u2502\n") * 8
        + "\u2514"
        + "\u2500" * 40
        + "\u2518\n\n"
    )
    return "```\n" + box * 3 + "```\n"


BENIGN: dict[str, Callable[[], str]] = {
    make.__name__: make
    for make in (
        *(
            access_log,
            service_log,
            installer_log,
            worded_log,
            csv_rows,
            json_rows,
            json_pretty,
            yaml_manifests,
            html_cards,
            python_handlers,
        ),
        *(
            go_errors,
            unit_tests,
            sql_inserts,
            markdown_table,
            empty_form,
            changelog,
            questionnaire,
            dialogue,
            recipe_steps,
            bottles,
        ),
        *(
            twelve_days,
            old_macdonald,
            wheels_on_the_bus,
            chorus_song,
            ascii_drawing,
            chess_boards,
            emoji_grid,
            progress_bars,
            comment_bars,
        ),
        *(
            shouting,
            binary_and_hex,
            long_division,
            genome,
            trace_of_a_sort,
            hanoi,
            multiplication,
            product_descriptions,
            legal_clauses,
        ),
        *(
            arabic,
            devanagari,
            japanese,
            services,
            build_files,
            business_cards,
            subtitles,
            minutes,
            tasks,
            litany,
            worked_steps,
            training,
        ),
        *(guitar, empty_boxes),
    )
}
