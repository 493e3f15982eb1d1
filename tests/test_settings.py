"""Settings: a mapping or a TOML file becomes detectors and a policy, or an error that says what is
wrong and what there is.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

import monitor
from monitor.chunks import ToolCall
from monitor.detectors import Detector, default_detectors
from monitor.errors import ConfigError
from monitor.policy import Ladder, ObserveOnly
from monitor.settings import COMPACTION_OPTIONS, POLICIES, Settings, detector_types, load_settings, parse_setting

DETECTORS = (
    "there are: ToolCallRepetition, ToolCallCycle, RepeatedError, LearnedEvidence, ContentRepetition,"
    " SimilarMessages, NoProgress, UnknownTool"
)


def calls_until_a_loop(detectors: list[Detector], tool: str = "look", most: int = 60) -> int | None:
    for n in range(1, most):
        for detector in detectors:
            if any(found.level == "loop" for found in detector.observe(ToolCall(str(n), tool, {"at": "door"}))):
                return n
    return None


# ------------------------------------------------------------------ what can be set


def test_nothing_set_is_the_default():
    config = Settings()
    assert [type(d) for d in config.detectors()] == [type(d) for d in default_detectors()]
    assert [d.snapshot() for d in config.detectors()] == [d.snapshot() for d in default_detectors()]
    assert calls_until_a_loop(config.detectors()) == 5
    assert config.policy() is None


def test_every_detector_of_the_library_can_be_named():
    assert {type(d) for d in default_detectors()} <= set(detector_types().values())
    assert all(Settings({"detectors": [name]}).detectors()[0].__class__.__name__ == name for name in detector_types())


@pytest.mark.parametrize(
    "name", ["ToolCallRepetition", "tool-call-repetition", "tool_call_repetition", "toolcallrepetition"]
)
def test_a_detector_may_be_spelled_in_several_ways(name: str):
    config = Settings({"detectors": [name], name: {"loop_at": 7}})
    assert calls_until_a_loop(config.detectors()) == 7
    assert config.settings == {"detectors": ["ToolCallRepetition"], "ToolCallRepetition": {"loop_at": 7}}


def test_each_run_gets_detectors_and_a_policy_of_its_own():
    config = Settings({"policy": "ladder", "ToolCallRepetition": {"loop_at": 7}})
    first, second = config.detectors(), config.detectors()
    assert not {id(d) for d in first} & {id(d) for d in second}
    assert calls_until_a_loop(first) == calls_until_a_loop(second) == 7
    assert config.policy() is not config.policy()


def test_what_is_said_of_a_tool_reaches_every_detector_that_asks():
    config = Settings({"tools": {"look": {"loop_at": 9}, "see": {"exempt": True}}})
    assert calls_until_a_loop(config.detectors(), "look") == 9
    assert calls_until_a_loop(config.detectors(), "see") is None
    assert calls_until_a_loop(config.detectors(), "hear") == 5


def test_what_a_detector_says_of_a_tool_stands_above_what_all_say():
    config = Settings({"tools": {"look": {"loop_at": 9}}, "ToolCallRepetition": {"tools": {"look": {"loop_at": 4}}}})
    assert calls_until_a_loop(config.detectors(), "look") == 4


def test_a_function_is_named_by_its_module():
    config = Settings({"tools": {"look": {"loop_key": "json:dumps"}}})
    assert calls_until_a_loop(config.detectors(), "look") == 5


def test_false_turns_off_what_has_an_off():
    (detector,) = Settings(
        {"detectors": ["ToolCallRepetition"], "ToolCallRepetition": {"suspect_at": False}}
    ).detectors()
    levels = [found.level for n in range(5) for found in detector.observe(ToolCall(str(n), "look", {}))]
    assert levels == ["loop"]


def test_a_rule_of_text_is_a_table_of_its_own():
    text = "I will look at the file again. " * 30
    (loud,) = Settings({"detectors": ["ContentRepetition"]}).detectors()
    (deaf,) = Settings(
        {
            "detectors": ["ContentRepetition"],
            "ContentRepetition": {"chant": False, "recurrence": False, "tail": {"copies": 90, "weak_copies": 90}},
        }
    ).detectors()
    assert isinstance(loud, monitor.ContentRepetition)
    assert isinstance(deaf, monitor.ContentRepetition)
    assert loud.feed(text)
    assert not deaf.feed(text)


@pytest.mark.parametrize(("word", "cls"), [*POLICIES.items(), ("Ladder", Ladder), ("observe-only", ObserveOnly)])
def test_a_policy_is_a_word_or_a_table(word: str, cls: type):
    assert isinstance(Settings({"policy": word}).policy(), cls)
    assert isinstance(Settings({"policy": {"type": word}}).policy(), cls)


def test_every_option_of_every_class_can_be_set_to_its_default():
    """The types of all options are understood, so none of them is a crash instead of an answer."""
    for name, cls in detector_types().items():
        for option, parameter in inspect.signature(cls).parameters.items():
            value: Any = parameter.default
            if value is None or isinstance(value, int | float | str):
                given: Any = False if value is None else value
            else:
                given = list(value) if isinstance(value, tuple) else {}
            made = Settings({"detectors": [name], name: {option: given}}).detectors()
            assert [type(one) for one in made] == [cls], option


def test_all_detectors_may_be_off():
    assert Settings({"detectors": []}).detectors() == []


# ------------------------------------------------------------------ what is wrong


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (
            {"ToolCallRepetition": {"loop": 7}},
            "ToolCallRepetition: there is no option 'loop'; did you mean loop_at? (there are: suspect_at,",
        ),
        ({"ToolCallRepetition": {"loop_at": "7"}}, "ToolCallRepetition.loop_at = '7': it should be a valid integer"),
        ({"ToolCallRepetition": {"loop_at": True}}, "ToolCallRepetition.loop_at = True: it should be a valid integer"),
        ({"ToolCallRepetition": {"suspect_at": "x"}}, "it should be a valid integer; false turns it off"),
        (
            {"ToolCallRepetition": {"loop_at": 2}},
            "give 2 to loop_at (2), or None for no suspicion (in a file, None is written false)",
        ),
        (
            {"ToolCallRepetition": {"loop_at": 5, "loop-at": 6}},
            "ToolCallRepetition.loop_at is there twice, the second time as 'loop-at'",
        ),
        ({"ToolCallRepetition": 7}, "ToolCallRepetition = 7: give a table, [ToolCallRepetition]"),
        ({"ToolCallRepetition": {}, "tool-call-repetition": {}}, "ToolCallRepetition is there twice"),
        (
            {"ToolCallRepitition": {}},
            "there is no setting 'ToolCallRepitition'; did you mean ToolCallRepetition? (there are: detectors,",
        ),
        ({"detectors": ["tool-call-repitition"]}, f"did you mean ToolCallRepetition? ({DETECTORS})"),
        ({"detectors": ["weather"]}, f"there is no detector 'weather' ({DETECTORS})"),
        ({"detectors": ["NoProgress", "no-progress"]}, "detectors: NoProgress is named twice"),
        ({"detectors": "NoProgress"}, "give a list of names"),
        ({"detectors": {"NoProgress": {}}}, "stands in a table of its name, e.g. [ToolCallRepetition]"),
        ({"tools": {"look": {"poling": True}}}, "tools.look: there is no option 'poling'; did you mean polling?"),
        ({"tools": {"look": {"volatile": "pid"}}}, "tools.look.volatile = 'pid': it should be a valid array"),
        (
            {"tools": {"look": {"polling": True, "side_effect": True}}},
            "tools.look: ToolPolicy(polling=True, side_effect=True): ",
        ),
        ({"tools": {"look": True}}, "tools.look = True: give a table, [tools.look]"),
        ({"tools": {"look": {"loop_key": "dumps"}}}, "give a function by its name, 'module:function'"),
        ({"tools": {"look": {"loop_key": "json:dumpz"}}}, "module 'json' has no attribute 'dumpz'"),
        ({"tools": {"look": {"loop_key": "no_such_module:f"}}}, "No module named 'no_such_module'"),
        ({"tools": {"look": {"loop_key": "json:__name__"}}}, "give a function by its name, 'module:function'"),
        (
            {"ContentRepetition": {"chant": True}},
            "ContentRepetition.chant = True: it should be an object; false turns it off",
        ),
        (
            {"ContentRepetition": {"tail": {"copeis": 3}}},
            "ContentRepetition.tail: there is no option 'copeis'; did you mean copies?",
        ),
        ({"ContentRepetition": {"tail": {"step_chars": 100}}}, "step_chars must be a power of two"),
        ({"ContentRepetition": {"channels": ["txt"]}}, "ContentRepetition.channels = ['txt']: it should be 'text', "),
        ({"policy": "leader"}, "there is no policy 'leader'; did you mean ladder? (there are: stop, observe, ladder)"),
        ({"policy": {"max_nudges": 1}}, "policy: say which one, type = one of 'stop', 'observe', 'ladder'"),
        (
            {"policy": {"type": "stop", "max_nudges": 1}},
            "policy: there is no option 'max_nudges'; StopAtFirstLoop has none",
        ),
        ({"policy": {"type": "ladder", "max_nudges": -1}}, "policy: Ladder(max_nudges=-1): give 0 or more"),
        ({"policy": {"type": 3}}, "policy.type = 3: give one of stop, observe, ladder"),
        ({"policy": 3}, "policy = 3: give a word or a table, [policy]"),
        ({"stop_when": {}}, "there is no setting 'stop_when'"),
    ],
)
def test_what_makes_no_sense_is_said_with_the_key_and_what_there_is(settings: dict[str, Any], says: str):
    with pytest.raises(ConfigError) as caught:
        Settings(settings)
    assert says in str(caught.value)


@pytest.mark.parametrize("settings", [[1], "x", 3])
def test_settings_that_are_no_table_are_refused(settings: Any):
    with pytest.raises(ConfigError, match="settings are a table"):
        Settings(settings)


# ------------------------------------------------------------------ on top of one another


def test_tables_are_joined_and_anything_else_is_replaced():
    config = Settings(
        {"detectors": ["NoProgress"], "ToolCallRepetition": {"suspect_at": 4, "loop_at": 8}}, source="x.toml"
    )
    config = config.updated({"tool-call-repetition": {"loop_at": 6}, "detectors": ["ToolCallRepetition"]})
    assert config.settings == {
        "detectors": ["ToolCallRepetition"],
        "ToolCallRepetition": {"suspect_at": 4, "loop_at": 6},
    }
    assert config.source == Path("x.toml")


def test_another_policy_drops_the_options_of_the_one_before_and_the_same_keeps_them():
    config = Settings({"policy": {"type": "ladder", "max_nudges": 1}})
    assert config.updated({"policy": "observe"}).settings == {"policy": {"type": "observe"}}
    assert config.updated({"policy": "Ladder"}).settings == config.settings
    assert config.updated({"policy": {"max_nudges": 2}}).settings == {"policy": {"type": "ladder", "max_nudges": 2}}


def test_only_what_comes_of_all_of_them_must_make_sense():
    config = Settings().updated({"ToolCallRepetition": {"loop_at": 2}}, {"ToolCallRepetition": {"suspect_at": 2}})
    assert calls_until_a_loop(config.detectors()) == 2


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("ToolCallRepetition.loop_at=7", {"ToolCallRepetition": {"loop_at": 7}}),
        ("policy=ladder", {"policy": "ladder"}),
        ("policy = 'ladder'", {"policy": "ladder"}),
        ('tools."fs.read".polling=true', {"tools": {"fs.read": {"polling": True}}}),
        ('policy.final_tools=["emit_value"]', {"policy": {"final_tools": ["emit_value"]}}),
        ("tools.look.loop_key=json:dumps", {"tools": {"look": {"loop_key": "json:dumps"}}}),
    ],
)
def test_a_setting_is_written_as_in_the_file_and_a_word_needs_no_quotation_marks(text: str, settings: dict[str, Any]):
    assert parse_setting(text) == settings


@pytest.mark.parametrize("text", ["", "x", "x=", "=4", "a b=3"])
def test_what_is_no_setting_is_said(text: str):
    with pytest.raises(ConfigError, match=r"KEY=VALUE|is not a key"):
        parse_setting(text)


# ------------------------------------------------------------------ files


def test_a_file_of_its_own(tmp_path: Path):
    (tmp_path / "x.toml").write_text("policy = 'ladder'\n[ToolCallRepetition]\nloop_at = 7\n")
    config = load_settings(tmp_path / "x.toml")
    assert calls_until_a_loop(config.detectors()) == 7
    assert isinstance(config.policy(), Ladder)
    assert config.source == tmp_path / "x.toml"


def test_the_table_of_a_project(tmp_path: Path):
    (tmp_path / "pyproject.toml").write_text(
        "[project]\nname = 'x'\n[tool.agent-monitor.ToolCallRepetition]\nloop_at = 7\n"
    )
    assert calls_until_a_loop(load_settings(tmp_path / "pyproject.toml").detectors()) == 7


def test_a_project_without_the_table_was_not_meant(tmp_path: Path):
    (tmp_path / "pyproject.toml").write_text("[tool.ruff]\n")
    with pytest.raises(ConfigError, match=r"there is no table \[tool\.agent-monitor\] in it"):
        load_settings(tmp_path / "pyproject.toml")


def test_the_current_directory_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert load_settings().source is None
    Path("pyproject.toml").write_text("[tool.ruff]\n")
    assert load_settings().source is None
    Path("pyproject.toml").write_text("[tool.agent-monitor]\npolicy = 'observe'\n")
    assert isinstance(load_settings().policy(), ObserveOnly)
    Path("agent-monitor.toml").write_text("policy = 'ladder'\n")
    assert isinstance(load_settings().policy(), Ladder)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"policy = ", "is not TOML: "),
        (b"\xff", "is not TOML: "),
        (b"polisy = 'ladder'", "x.toml: there is no setting 'polisy'; did you mean policy?"),
    ],
)
def test_a_file_with_an_error_is_named(tmp_path: Path, content: bytes, says: str):
    (tmp_path / "x.toml").write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load_settings(tmp_path / "x.toml")
    assert str(tmp_path / "x.toml") in str(caught.value)
    assert says in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"cannot read .*none\.toml: No such file"):
        load_settings(tmp_path / "none.toml")


def test_the_settings_can_be_printed():
    assert repr(Settings({"policy": "stop"})) == "Settings({'policy': {'type': 'stop'}}, source=None)"


# ------------------------------------------------------------------ compaction


def test_nothing_said_of_compaction_is_the_default_preset_and_off_is_none():
    assert Settings().compaction() == monitor.Compaction()
    assert Settings({"compaction": "off"}).compaction() is None


@pytest.mark.parametrize("name", ["gemini_cli", "gemini-cli", "GeminiCli"])
def test_a_preset_may_be_one_word(name: str):
    assert Settings({"compaction": name}).compaction() == monitor.Compaction.gemini_cli()


def test_a_preset_s_numbers_can_be_changed_by_name():
    table = {
        "preset": "pi",
        "timeout_s": 60.0,
        "headroom": {"share": 0.5},
        "low_water": 0.5,
        "rules": "Never push.",
        "continues": "never",
    }
    compaction = Settings({"compaction": table}).compaction()
    assert compaction is not None
    assert (compaction.name, compaction.timeout_s, compaction.headroom.share, compaction.rules) == (
        "pi",
        60.0,
        0.5,
        "Never push.",
    )
    assert compaction.keep == monitor.Compaction.pi().keep
    default = Settings({"compaction": {"attempts": 1}}).compaction()
    assert default == monitor.Compaction(attempts=1)


def test_every_option_of_a_preset_that_is_a_number_or_a_word_can_be_set():
    assert set(COMPACTION_OPTIONS) <= set(inspect.signature(monitor.Compaction).parameters)


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        (
            "emacs",
            (
                "compaction: there is no preset 'emacs' (there are: default, gemini_cli, claude_code, opencode,"
                " openclaw, pi, off)"
            ),
        ),
        (3, r"compaction = 3: give a word or a table, \[compaction\]"),
        ({"preset": 3}, "compaction.preset = 3: give one of default, "),
        ({"timeout": 3}, "compaction: there is no option 'timeout'; did you mean timeout_s"),
        ({"keep": 3}, r"compaction: there is no option 'keep' .*\(there are: headroom, low_water, "),
        ({"timeout_s": "long"}, "compaction.timeout_s = 'long': "),
        ({"low_water": 7}, "compaction: low_water is 7"),
        ({"preset": "off", "attempts": 1}, "compaction: it is off, so it has no option 'attempts'"),
    ],
)
def test_what_makes_no_sense_of_compaction_is_an_error_that_lists_what_does(table: Any, complaint: str):
    with pytest.raises(
        ConfigError, match=complaint.replace("(there are: default", r"\(there are: default").replace("off)", r"off\)")
    ):
        Settings({"compaction": table})


def test_another_preset_drops_the_numbers_of_the_one_before():
    config = Settings({"compaction": {"preset": "pi", "timeout_s": 60.0}})
    assert config.updated({"compaction": "pi"}).compaction() == monitor.Compaction.pi(timeout_s=60.0)
    assert config.updated({"compaction": "opencode"}).compaction() == monitor.Compaction.opencode()
    assert config.updated({"compaction": "off"}).compaction() is None


# ------------------------------------------------------------------ the calls of a supervised run

RULES = """
[[rules]]
name = "no pushes"
tool = "shell"
command = "git push"
decision = "deny"
match = ["git push origin main"]
not_match = ["git status"]
"""


def test_without_a_setting_nothing_is_said_about_calls():
    assert (Settings().approval(), Settings().max_parallel_tools) == (None, None)


def test_approval_is_one_word_or_a_table_with_rules_that_are_checked(tmp_path: Path):
    one = Settings({"approval": "auto_edit", "max-parallel-tools": 3})
    assert (one.approval(), one.max_parallel_tools) == (monitor.tools.Approval(mode="auto_edit"), 3)
    inner = RULES.replace("[[rules]]", "[[approval.rules]]")
    (tmp_path / "rules.toml").write_text(RULES)
    for name, text in (("a.toml", inner), ("b.toml", '[approval]\nrules = "rules.toml"')):
        (tmp_path / name).write_text(text)
        approval = load_settings(tmp_path / name).updated({"approval": {"mode": "yolo", "expires_s": 5}}).approval()
        assert approval is not None
        assert (approval.mode, approval.expires_s) == ("yolo", 5)
        assert isinstance(approval.rules, monitor.tools.Rules)
        ruling = approval.rules.judge("shell", {"command": "cd x && git push"})
        assert ruling is not None
        assert (ruling.decision, ruling.rule) == ("deny", "no pushes")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"approval": "sometimes"}, "approval.mode = 'sometimes'"),
        ({"approval": {"mod": "yolo"}}, "did you mean mode"),
        ({"approval": {"expires_s": 0}}, "expires_s=0"),
        ({"approval": 3}, "give a word or a table"),
        ({"approval": {"rules": 3}}, "write \\[\\[approval.rules\\]\\]"),
        ({"approval": {"rules": "nowhere.toml"}}, "nowhere.toml"),
        ({"approval": {"rules": [{"tool": "x", "decision": "maybe"}]}}, "rule 1: decision"),
        ({"approval": {"rules": [{"tool": "x", "decision": "deny", "not_match": [{}]}]}}, "its own example"),
        ({"max_parallel_tools": 0}, "1 or more"),
        ({"max_parallel_tools": True}, "1 or more"),
    ],
)
def test_an_approval_that_makes_no_sense_is_refused_when_it_is_read(settings: dict[str, Any], says: str):
    with pytest.raises(ConfigError, match=says):
        Settings(settings)
