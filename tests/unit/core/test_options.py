"""Options: one place for each, checked whichever way they are made."""

import dataclasses

import pytest

from treadle.core import Options, UsageError, unknown_variables
from treadle.core.option_values import AnyText, Flag, RegularExpression, WholeNumber

VARIABLES = {
    "TREADLE_CHECK": ("check", "2", 2),
    "TREADLE_HOST": ("host", "c", "c"),
    "TREADLE_CODE": ("code", "triton", "triton"),
    "TREADLE_DEBUG": ("debug", " 5 ", 5),
    "TREADLE_DUMP": ("dump", "out dir", "out dir"),
    "TREADLE_DUMP_PASS": ("dump_pass", "fuse.*", "fuse.*"),
    "TREADLE_STOP_AFTER": ("stop_after", "0", 0),
    "TREADLE_TARGET": ("target", "h200", "h200"),
    "TREADLE_COST_FILE": ("cost_file", "costs.json", "costs.json"),
    "TREADLE_POLICY": ("policy", "memory", "memory"),
    "TREADLE_RECORD": ("record", "0", False),
    "TREADLE_AUTOTUNE": ("autotune", "0", False),
    "TREADLE_CHANNELS_LAST": ("channels_last", "0", False),
    "TREADLE_TUNED": ("tuned", "tuned.json", "tuned.json"),
    "TREADLE_COMM": ("comm", "model", "model"),
    "TREADLE_HARDWARE": ("hardware", "h100-8x4", "h100-8x4"),
    "TREADLE_WORLD": ("world", "64", 64),
    "TREADLE_BUCKET": ("bucket", "25MiB", 25 << 20),
    "TREADLE_SPLIT": ("split", "1", True),
    "TREADLE_IN_FLIGHT": ("in_flight", "256MiB", 256 << 20),
    "TREADLE_PREFETCH": ("prefetch", "12", 12),
    "TREADLE_PRODUCTS": ("products", "library", "library"),
    "TREADLE_REUSE": ("reuse", "64MiB", 64 << 20),
    "TREADLE_ACCOUNTING": ("accounting", "inductor", "inductor"),
    "TREADLE_STRICT": ("strict", "1", True),
    "TREADLE_REGATHER": ("regather", "always", "always"),
    "TREADLE_NUMERICS": ("numerics", "exact", "exact"),
    "TREADLE_MEMORY_LIMIT": ("memory_limit", "1000", 1000),
    "TREADLE_CACHE_DIR": ("cache_dir", "kernels", "kernels"),
    "TREADLE_CACHE_LIMIT": ("cache_limit", "2MiB", 2 << 20),
    "TREADLE_REPORT": ("report", "out.html", "out.html"),
    "TREADLE_REPORT_TIMES": ("report_times", "0", False),
    "CC": ("cc", "clang", "clang"),
}


def test_the_defaults_are_the_documented_ones() -> None:
    assert dataclasses.asdict(Options()) == {
        "check": 1,
        "debug": 0,
        "dump": None,
        "policy": "balanced",
        "accounting": "ours",
        "cache_dir": None,
        "cache_limit": 1 << 30,
        "cc": None,
        "dump_pass": None,
        "stop_after": None,
        "strict": False,
        "numerics": "torch",
        "host": "auto",
        "code": "auto",
        "record": True,
        "comm": "simple",
        "hardware": None,
        "world": None,
        "bucket": None,
        "split": False,
        "in_flight": None,
        "prefetch": None,
        "products": "auto",
        "autotune": True,
        "channels_last": True,
        "tuned": None,
        "reuse": 128 << 20,
        "memory_limit": None,
        "regather": "auto",
        "report": None,
        "report_times": True,
        "explain": False,
        "seed": 0,
        "target": None,
        "cost_file": None,
    }


def test_options_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Options().check = 2  # type: ignore[misc]


@pytest.mark.parametrize("variable", VARIABLES)
def test_each_variable_sets_its_option_and_no_other(variable: str) -> None:
    name, text, value = VARIABLES[variable]
    assert Options.from_env({variable: text}) == Options.make(**{name: value})


def test_the_variables_are_exactly_the_documented_ones() -> None:
    rows = Options().describe()
    assert {row.variable: row.name for row in rows if row.variable} == {
        variable: name for variable, (name, _, _) in VARIABLES.items()
    }


def test_unset_and_empty_variables_say_nothing() -> None:
    assert Options.from_env({}) == Options()
    assert Options.from_env(dict.fromkeys(VARIABLES, "")) == Options()


def test_the_real_environment_is_read_when_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_STOP_AFTER", "7")
    assert Options.from_env().stop_after == 7


@pytest.mark.parametrize(
    "variable, text",
    [
        ("TREADLE_CHECK", "4"),
        ("TREADLE_CHECK", "-1"),
        ("TREADLE_CHECK", "two"),
        ("TREADLE_CHECK", "1.0"),
        ("TREADLE_DEBUG", "6"),
        ("TREADLE_DEBUG", "0x1"),
        ("TREADLE_STOP_AFTER", "1_0"),
        ("TREADLE_STOP_AFTER", "²"),
        ("TREADLE_STOP_AFTER", "9" * 5000),
        ("TREADLE_DUMP_PASS", "fuse("),
    ],
)
def test_should_not_accept_a_bad_variable(variable: str, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        Options.from_env({variable: text})
    assert caught.value.code == "OPT002"
    assert caught.value.message == f"{variable} cannot be {text!r}"
    assert caught.value.notes[0].startswith("allowed: ")


@pytest.mark.parametrize(
    "values",
    [
        {"check": 4},
        {"check": True},
        {"check": "1"},
        {"check": None},
        {"debug": -1},
        {"dump": ""},
        {"dump_pass": "("},
        {"stop_after": -1},
        {"explain": 1},
        {"seed": None},
        {"seed": 1.0},
        {"cost_file": 3},
    ],
)
def test_should_not_accept_a_bad_value_through_any_constructor(values: dict[str, object]) -> None:
    for build in (Options.make, Options, Options().with_):
        with pytest.raises(UsageError) as caught:
            build(**values)  # type: ignore[arg-type]
        assert caught.value.code == "OPT002"


def test_should_not_accept_an_unknown_name() -> None:
    for build in (Options.make, Options().with_):
        with pytest.raises(UsageError) as caught:
            build(dump_pas="x")
        assert caught.value.code == "OPT001"
        assert caught.value.notes[0] == "did you mean: dump_pass, dump"


def test_changing_some_values_keeps_the_others() -> None:
    assert Options.make(check=3, seed=5).with_(seed=6) == Options.make(check=3, seed=6)


def test_every_option_is_described() -> None:
    rows = Options.make(check=3).describe()
    assert [row.name for row in rows] == [one.name for one in dataclasses.fields(Options)]
    assert all(row.doc and row.allowed for row in rows)
    check = rows[0]
    assert (check.value, check.default, check.variable) == (3, 1, "TREADLE_CHECK")
    assert check.allowed == "a whole number from 0 to 3"


def test_variables_that_mean_nothing_are_reported_with_the_likely_ones() -> None:
    environ = {"TREADLE_CHEK": "1", "TREADLE_CHECK": "1", "PATH": "x", "TREADLE_QQQQQQQQQQQ": ""}
    assert unknown_variables(environ) == {
        "TREADLE_CHEK": ("TREADLE_CHECK",),
        "TREADLE_QQQQQQQQQQQ": (),
    }


def test_kinds_of_values_say_what_they_allow() -> None:
    assert WholeNumber(2).describe() == "a whole number from 2 up"
    assert AnyText("a folder").describe() == "a folder"
    assert RegularExpression().describe() == "a regular expression"
    assert Flag().describe() == "True or False (in the environment 1 or 0)"


def test_a_flag_is_one_or_zero_in_the_environment() -> None:
    assert Flag().parse("1") is True
    assert Flag().parse(" 0 ") is False
    with pytest.raises(ValueError):
        Flag().parse("yes")


def test_should_not_accept_a_huge_pattern_with_a_traceback() -> None:
    assert not RegularExpression().accepts("(" * 100_000)
    assert not RegularExpression().accepts("a{99999999999}")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4096", 4096),
        ("16MiB", 16 << 20),
        ("1.5 GiB", 3 << 29),
        ("64kB", 64_000),
        ("2g", 2 << 30),
        ("0.5k", 512),
        ("7B", 7),
    ],
)
def test_byte_counts_are_written_as_people_write_them(text: str, size: int) -> None:
    assert Options.from_env({"TREADLE_MEMORY_LIMIT": text}).memory_limit == size
    assert Options.make(memory_limit=text).memory_limit == size
    assert Options.make(memory_limit=size).memory_limit == size


@pytest.mark.parametrize("text", ["16 MiBs", "1.5", "0.3KiB", "-1", "١KiB", "1e3", "", "0"])
def test_what_is_no_byte_count_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(UsageError, match=r"OPT002.*memory_limit") as caught:
        Options.make(memory_limit=text)
    assert "such as 4096, 64kB or 16MiB" in str(caught.value)


def test_a_size_that_may_be_found_is_a_word_or_bytes() -> None:
    assert Options.make(bucket="auto").bucket == "auto"
    assert Options.from_env({"TREADLE_BUCKET": "auto"}).bucket == "auto"
    assert Options.make(bucket="2MiB").bucket == 2 << 20
    for bad in (0, "much", True):
        with pytest.raises(UsageError, match="bucket cannot be") as caught:
            Options.make(bucket=bad)
        assert "auto, or" in str(caught.value)
