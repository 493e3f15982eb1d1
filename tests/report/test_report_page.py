"""The page in a real browser, and as the text that it is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from monitor.report.report_page import ReportPage, as_data, policy_of
from monitor.report.run_details import StoryWatcher
from monitor.transcripts.analysis.survey import survey
from monitor.transcripts.source import Source
from tests.report.browser import CHROMIUM, Tab, browser

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed: apt-get install chromium")

HOSTILE = [
    "</script><script>document.title='owned'</script>",
    "<!--<script>",
    "]]><img src=x onerror=\"document.title='owned'\">",
    "<a href=\"javascript:document.title='owned'\">x</a>",
    "javascript:document.title='owned'",
    "\" onmouseover=\"document.title='owned'",
    "{{constructor.constructor('document.title=1')()}}",
    "%DATA% %SCRIPT% %STYLE% %POLICY%",
    "line\u2028and\u2029paragraph",
    "lone \ud83d surrogate \udc00",
    "\u202egnp.exe",
    "\x00\x1b[31m",
    "__proto__",
    "constructor",
]

SEARCH = (
    "document.getElementById('search').value = '{}';"
    " document.getElementById('filters').dispatchEvent(new Event('input'))"
)


def run_of(text: str, *, number: int = 0, loop: bool = True) -> dict[str, Any]:
    call = {"role": "assistant", "text": text, "tool_calls": [{"name": text, "args": {text: text}}]}
    result = {"role": "tool", "tool_results": [{"name": text, "text": text, "is_error": True}]}
    return {
        "id": f"{text}#{number}",
        "model": text,
        "source": text,
        "messages": [{"role": "user", "text": text}, *[call, result] * (7 if loop else 2)],
    }


def page_of(*runs: dict[str, Any], **options: Any) -> str:
    lines = "".join(json.dumps(run) + "\n" for run in runs)
    page = ReportPage(**options)
    for run in survey(Source.of_bytes("<b>runs</b>.jsonl", lines.encode()), watcher=StoryWatcher):
        page.add(run)
    return "".join(page.pieces(facts={"made": 1_700_000_000.0, "bad": 0}))


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_a_cost_of_nothing_is_known_and_an_unknown_cost_is_not_there():
    (run,) = survey(Source.of_bytes("a.jsonl", (json.dumps(run_of("plain")) + "\n").encode()))
    assert "usd" not in as_data(run, key="k", texts=True)
    assert as_data(replace(run, cost_usd=0.0), key="k", texts=True)["usd"] == 0.0


def test_the_page_opens_with_the_card():
    facts = json.loads(page_of(run_of("plain"), run_of("fine", loop=False)).split('{"facts":')[1].split(',"runs":')[0])
    assert facts["card"]["headline"] == "1 of 2 runs looped"
    assert facts["card"]["about"] == [
        "It was plain 7 times with the same arguments, step 1 to 7, at an unknown cost",
        "The run: 7 steps, at an unknown cost",
    ]
    assert facts["card"]["stop"] == "A stop at the fifth would have avoided 2 steps."


def test_what_a_transcript_says_adds_no_tag_to_the_page():
    plain, hostile = Tags(page_of(run_of("plain"))), Tags(page_of(*map(run_of, HOSTILE)))
    assert [tag for tag, _ in hostile.tags] == [tag for tag, _ in plain.tags]
    assert hostile.tags[1:] == plain.tags[1:]


def test_the_title_is_text():
    page = page_of(run_of("plain"), title="</title><script>%DATA%&")
    assert [tag for tag, _ in Tags(page).tags] == [tag for tag, _ in Tags(page_of(run_of("plain"))).tags]


def test_the_data_is_json_that_comes_back_as_it_was():
    page = page_of(*map(run_of, HOSTILE))
    text = page.split('id="data">')[1].split("</script>")[0]
    assert text.isascii()
    assert {"<", ">", "&", "\u2028"}.isdisjoint(text)
    data = json.loads(text)
    assert len(data["runs"]) == len(HOSTILE)


def test_the_policy_allows_the_one_script_and_loads_nothing():
    page = page_of(run_of("plain"))
    policy = next(str(attributes["content"]) for _, attributes in Tags(page).tags if "http-equiv" in attributes)
    style = page.split("<style>")[1].split("</style>")[0]
    script = page.split("<script>")[1].split("</script>")[0]
    assert policy == policy_of(style, script)
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page)


def test_the_script_writes_texts_and_never_markup():
    script = files("monitor.report").joinpath("page.js").read_text()
    forbidden = (
        "innerHTML",
        "outerHTML",
        "insertAdjacent",
        "document.write",
        "eval(",
        "Function(",
        "fetch(",
        "import(",
    )
    assert [word for word in forbidden if word in script] == []


def test_runs_with_a_loop_come_first_and_links_are_unique():
    page = page_of(*(run_of("same", loop=False) for _ in range(3)), run_of("other"))
    runs = json.loads(page.split('id="data">')[1].split("</script>")[0])["runs"]
    assert "loop" in runs[0]
    assert len({run["key"] for run in runs}) == len(runs) == 4


# ------------------------------------------------------------------ in a browser


@pytest.fixture(scope="module")
def hostile_tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    folder = tmp_path_factory.mktemp("browser")
    page = folder / "page.html"
    many = [run_of(f"quiet {at}", number=at, loop=False) for at in range(300)]
    page.write_text(page_of(*map(run_of, HOSTILE), *many), encoding="utf-8")
    with browser(folder) as tab:
        tab.open(page)
        yield tab


@needs_browser
def test_no_script_of_a_transcript_runs_and_nothing_is_loaded(hostile_tab: Tab):
    for at in range(len(HOSTILE)):
        hostile_tab.run(
            f"location.hash = '#run=' + JSON.parse(document.getElementById('data').textContent).runs[{at}].key"
        )
        hostile_tab.run("new Promise(done => setTimeout(done, 20))")
        assert hostile_tab.run("document.querySelector('main .finding') !== null")
    assert hostile_tab.run("document.title.startsWith('owned')") is False
    assert (
        hostile_tab.run(
            "document.querySelectorAll('main script, main img, main iframe, [onerror], [onmouseover]').length"
        )
        == 0
    )
    addresses = hostile_tab.run("[...document.querySelectorAll('main a')].map(a => a.getAttribute('href'))")
    assert addresses
    assert all(re.fullmatch(r"#run=[0-9a-f-]+(&step=\d+)?", address) for address in addresses)
    assert hostile_tab.complaints() == []


@needs_browser
def test_the_list_holds_only_the_rows_that_are_seen(hostile_tab: Tab):
    hostile_tab.run(SEARCH.format(""))
    assert hostile_tab.run("document.getElementById('sum').textContent") == "314 runs, 14 with a loop"
    assert hostile_tab.run("document.querySelectorAll('.row').length") < 30
    hostile_tab.run("document.getElementById('list').focus()")
    hostile_tab.press("End")
    assert hostile_tab.run("document.querySelector('[aria-selected=true]').getAttribute('aria-posinset')") == "314"


@needs_browser
def test_keys_search_move_and_open(hostile_tab: Tab):
    hostile_tab.run("document.getElementById('to-overview').click()")
    hostile_tab.press("/")
    assert hostile_tab.run("document.activeElement.id") == "search"
    for key in "quiet 77":
        hostile_tab.press(key)
    assert hostile_tab.run("document.getElementById('sum').textContent") == "3 of 314 runs, 0 with a loop"
    hostile_tab.press("Escape")
    assert hostile_tab.run("document.getElementById('sum').textContent") == "314 runs, 14 with a loop"
    hostile_tab.press("Escape")
    assert hostile_tab.run("document.activeElement.id") == "list"
    hostile_tab.press("n")
    assert hostile_tab.run("document.querySelector('main .finding') !== null")
    hostile_tab.press("g")
    assert "&step=" in hostile_tab.run("location.hash")
    assert hostile_tab.run("document.querySelector('.here .badge').textContent").strip().startswith("·")
    hostile_tab.press("Enter")
    assert hostile_tab.run("document.activeElement.id") == "part"
    hostile_tab.press("?")
    assert hostile_tab.run("document.getElementById('help').open") is True
    hostile_tab.press("Escape")
    assert hostile_tab.run("document.getElementById('help').open") is False


@needs_browser
def test_keys_of_one_letter_can_be_switched_off(hostile_tab: Tab):
    hostile_tab.run("document.getElementById('to-overview').click()")
    hostile_tab.run("document.getElementById('keys-on').checked = false")
    hostile_tab.press("n")
    assert hostile_tab.run("location.hash") == ""
    hostile_tab.run("document.getElementById('keys-on').checked = true")


@needs_browser
def test_everything_that_can_be_used_has_a_name_and_ids_are_unique(hostile_tab: Tab):
    hostile_tab.press("n")
    nameless = hostile_tab.run(
        """[...document.querySelectorAll('button, input, select, a, [role=img], [role=listbox], dialog, section')]
          .filter(one =>
          !(one.textContent.trim() || one.getAttribute('aria-label') || one.getAttribute('aria-labelledby')
            || (one.labels && one.labels.length) || one.id === 'print')).map(one => one.outerHTML.slice(0, 80))"""
    )
    assert nameless == []
    ids = hostile_tab.run("[...document.querySelectorAll('[id]')].map(one => one.id)")
    assert len(ids) == len(set(ids))
    assert hostile_tab.run("document.documentElement.lang") == "en"
    levels = hostile_tab.run(
        "[...document.querySelectorAll('h1, h2, h3')].filter(h => !h.closest('dialog')).map(h => +h.tagName[1])"
    )
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


@needs_browser
def test_the_tab_key_goes_through_search_filters_list_and_run_in_that_order(hostile_tab: Tab):
    hostile_tab.run("document.getElementById('to-overview').click(); document.querySelector('.skip').focus()")
    seen = [hostile_tab.run("document.activeElement.className")]
    for _ in range(10):
        hostile_tab.press("Tab")
        seen.append(hostile_tab.run("document.activeElement.id"))
    assert seen == [
        "skip",
        "to-overview",
        "theme",
        "to-help",
        "search",
        "show",
        "agent",
        "project",
        "state",
        "order",
        "list",
    ]


@needs_browser
def test_it_prints_the_list_of_runs(hostile_tab: Tab):
    hostile_tab.run("document.getElementById('to-overview').click()")
    hostile_tab.run("dispatchEvent(new Event('beforeprint'))")
    assert hostile_tab.run("document.querySelectorAll('#print tbody tr').length") == 314
    hostile_tab.run("dispatchEvent(new Event('afterprint'))")
    assert len(hostile_tab.ask("Page.printToPDF")["data"]) > 10_000


@needs_browser
def test_the_loop_is_a_band_of_the_time_line_with_the_line_of_the_stop(hostile_tab: Tab):
    hostile_tab.run("location.hash = '#run=' + JSON.parse(document.getElementById('data').textContent).runs[0].key")
    hostile_tab.run("new Promise(done => setTimeout(done, 50))")
    places = """(() => {
      const at = (name) => document.querySelector(`#part ${name}`).getBoundingClientRect();
      return [at(".f-band").left, at(".f-band").right, at(".s-stop").left, at(".f-spared").left, at(".f-spared").right];
    })()"""
    band, end, stop, spared, last = hostile_tab.run(places)
    assert band < end
    assert abs(stop - end) < 2
    assert abs(spared - end) < 2
    assert spared < last


@needs_browser
@pytest.mark.parametrize("at", [0, 150, 313])
def test_a_link_to_a_run_shows_its_details_wherever_they_stand(at: int, hostile_tab: Tab):
    """The details of 314 runs stand in two pieces."""
    runs = "JSON.parse(document.getElementById('data').textContent).runs"
    place = hostile_tab.run(f"location.href.split('#')[0] + '#run=' + {runs}[{at}].key")
    hostile_tab.ask("Page.navigate", url="about:blank")
    hostile_tab.events.clear()
    hostile_tab.ask("Page.navigate", url=place)
    while not any(event.get("method") == "Page.loadEventFired" for event in hostile_tab.events):
        hostile_tab.run("0")
    hostile_tab.run("new Promise(done => setTimeout(done, 50))")
    assert hostile_tab.run("document.querySelectorAll('#part .steps > li').length") > 4


@needs_browser
def test_a_word_of_any_step_is_found_before_its_piece_was_opened(hostile_tab: Tab):
    of_arguments = SEARCH.format('299":')  # as the arguments of its calls have it, and nothing else
    assert hostile_tab.run(f"{of_arguments}; document.getElementById('sum').textContent").startswith("1 of")
    hostile_tab.run(SEARCH.format(""))


@needs_browser
def test_five_thousand_runs_are_usable(tmp_path: Path):
    page = ReportPage()
    (one,) = survey(Source.of_bytes("r.jsonl", json.dumps(run_of("many")).encode()), watcher=StoryWatcher)
    for _ in range(5_000):
        page.add(one)
    file = tmp_path / "page.html"
    file.write_text("".join(page.pieces()), encoding="utf-8")
    with browser(tmp_path) as tab:
        tab.open(file)
        assert tab.run("document.getElementById('sum').textContent") == "5,000 runs, 5,000 with a loop"
        took = tab.run(
            f"(() => {{ const at = performance.now(); {SEARCH.format('nothing')}; return performance.now() - at; }})()"
        )
        assert took < 5_000  # milliseconds, on a machine that is shared; a tenth of it is usual
        assert tab.complaints() == []


COSTS_USD = {"look": None, "fine": 2.5, "cheap": 0.004}


@pytest.fixture(scope="module")
def small_tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Tab, Path]]:
    """A page with one loop of three runs, with no tokens, and the costs of the other runs only."""
    folder = tmp_path_factory.mktemp("small")
    lines = "".join(json.dumps(run_of(name, loop=usd is None)) + "\n" for name, usd in COSTS_USD.items())
    page = ReportPage()
    for run in survey(Source.of_bytes("runs.jsonl", lines.encode()), watcher=StoryWatcher):
        page.add(replace(run, cost_usd=COSTS_USD[run.began.model], saved_usd=None, saved_tokens=None))
    (file := folder / "page.html").write_text("".join(page.pieces()), encoding="utf-8")
    with browser(folder) as tab:
        yield tab, file


@needs_browser
def test_the_card_stands_first_and_leads_to_the_run_that_it_is_about(small_tab: tuple[Tab, Path]):
    tab, file = small_tab
    tab.open(file)
    assert tab.run("document.querySelector('#card h2').textContent") == "1 of 3 runs looped"
    tab.run(SEARCH.format("fine"))
    assert tab.run("document.getElementById('card').hidden") is True  # it is about all runs
    tab.run(SEARCH.format(""))
    tab.run("document.querySelector('#card a').click()")
    tab.run("new Promise(done => setTimeout(done, 50))")
    assert tab.run("document.querySelector('main h2').textContent") == "look"
    assert tab.run("document.getElementById('card').hidden") is True


@needs_browser
def test_an_unknown_number_is_called_unknown_and_a_part_of_a_sum_is_at_least_that(small_tab: tuple[Tab, Path]):
    tab, file = small_tab
    tab.open(file)
    tiles = tab.run(
        "[...document.querySelectorAll('.numbers li')].map(one => [...one.children].map(c => c.textContent))"
    )
    told = {name: value for value, name in tiles}
    assert told["tokens"] == told["a stop would save"] == told["tokens a stop would save"] == "unknown"
    assert told["cost"] == "≥ $2.50"
    tab.run("document.querySelector('#card a').click()")
    tab.run("new Promise(done => setTimeout(done, 50))")
    assert tab.run("document.querySelector('.finding p').textContent").endswith("tokens and an unknown cost.")


@needs_browser
def test_a_small_cost_is_not_shown_as_0(small_tab: tuple[Tab, Path]):
    tab, file = small_tab
    tab.open(file)
    rows = tab.run("[...document.querySelectorAll('.row')].map(one => one.children[1].textContent)")
    assert [row.rpartition("· ")[2] for row in rows if "$" in row] == ["$2.50", "< $0.01"]


@needs_browser
def test_the_overview_has_words_for_people_and_no_name_of_a_detector(small_tab: tuple[Tab, Path]):
    tab, file = small_tab
    tab.open(file)
    said = tab.run("document.querySelector('.columns').innerText")
    assert "look 5 times with the same arguments" in said
    assert "identical_calls" not in said


@needs_browser
def test_on_a_phone_the_card_comes_before_the_list_and_the_time_line_keeps_its_height(small_tab: tuple[Tab, Path]):
    tab, file = small_tab
    tab.show_as(width=390)
    tab.open(file)
    tops = "['#card', '#filters', 'main'].map(one => document.querySelector(one).getBoundingClientRect().top)"
    assert (found := tab.run(tops)) == sorted(found)
    tab.run("document.querySelector('#card a').click()")
    tab.run("new Promise(done => setTimeout(done, 50))")
    assert tab.run("document.querySelector('svg.chart').getBoundingClientRect().height") > 60
    tab.show_as(width=1280)


# ------------------------------------------------------------------ contrast


def colours(theme: str) -> dict[str, str]:
    css = files("monitor.report").joinpath("page.css").read_text()
    block = re.search(rf"^{re.escape(theme)} \{{(.*?)\}}", css, re.DOTALL | re.MULTILINE)
    assert block is not None
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block[1]))


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [":root", ":root.dark"])
def test_text_can_be_read_on_every_ground_on_which_it_stands(theme: str):
    have = colours(theme)
    grounds = ("ground", "panel", "chosen", "loop-ground")
    for text in ("text", "quiet", "loop", "accent", "error"):
        for ground in grounds:
            assert contrast(have[text], have[ground]) >= 4.5, (text, ground)
    for mark in ("turn", "call", "error", "person", "squeeze", "loop", "note", "line"):
        assert contrast(have[mark], have["ground"]) >= 3, mark
