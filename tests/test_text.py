"""Remote text made safe, numbers made readable."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eagletui.text import (
    FOLD,
    MARK,
    cells,
    clean,
    clock,
    duration,
    fold,
    fold_words,
    millis,
    number,
    pad,
    percent,
    plural,
    rate,
    short_card,
    short_command,
    size,
    watts,
)


def is_safe(text: str) -> bool:
    return not any(unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") for char in text)


@pytest.mark.fault(24, how="any bytes and any text through the sanitiser")
@given(st.binary(max_size=400))
@example(b"\x1b]52;c;aGFja2Vk\x07")
@example(b"\xc2\x9b31m")
@example("\u202ereversed\u2066x\ud800".encode("utf-8", "surrogatepass"))
def test_no_bytes_get_through(data: bytes) -> None:
    shown = clean(data)
    assert is_safe(shown)
    shown.encode("utf-8")


@pytest.mark.fault(24, how="any bytes and any text through the sanitiser")
@given(st.text(st.characters(), max_size=300), st.integers(0, 60))
def test_no_text_gets_through_and_it_fits(text: str, cap: int) -> None:
    shown = clean(text, cap)
    assert is_safe(shown)
    assert cells(shown) <= cap
    assert len(shown) <= 2 * cap + 10
    assert clean(shown, cap) == shown


@given(st.text(st.characters(codec="utf-8", categories=("Lu", "Ll", "Nd", "Po", "Sm")), max_size=80))
def test_plain_text_is_left_alone(text: str) -> None:
    assert clean(text) == text


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[2J\x1b[1;1Hgone", "gone"),
        ("a\x1b]0;title\x07b", "ab"),
        ("a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\b", "alinkb"),
        ("a\x1bPq#0\x1b\\b", "ab"),
        ("a\x1b_apc\x9cb", "ab"),
        ("a\x1b^pm\x07b", "ab"),
        ("a\x1bXsos\x1b\\b", "ab"),
        ("a\x9d52;c;x\x07b", "ab"),
        ("a\x1b]52;c;never ends", "a"),
        ("a\x1b]52;c;ends with the line\nb", "a b"),
        ("a\x1b[12;3", "a"),
        ("a\x1b", "a"),
        ("a\x1b(Bb", "ab"),
        ("\x1bc", ""),
        ("a\tb", "a    b"),
        ("a\r\nb", "a b"),
        ("a\x00\x08\x7f\x85b", "ab"),
        ("abc\u202edef", f"abc{MARK}def"),
        ("a\u200bb\u00adc", f"a{MARK}b{MARK}c"),
        ("[@click=app.quit]x[/]", "[@click=app.quit]x[/]"),
    ],
)
def test_sequences(raw: str, shown: str) -> None:
    assert clean(raw) == shown


def test_a_stack_of_marks_is_cut() -> None:
    shown = clean("Z" + "\u0300" * 500)
    assert len(shown) < 10
    assert MARK in shown


def test_megabytes_are_not_worked_through() -> None:
    assert len(clean("\x1b[31m" * 2_000_000 + "x", 80)) <= 80


@given(st.text(max_size=60), st.integers(1, 40), st.sampled_from("<>^"))
def test_pad_is_exact(text: str, width: int, align: str) -> None:
    assert cells(pad(clean(text), width, align)) == width


def test_fold_marks_the_cut() -> None:
    assert fold("abcdef", 4) == "abc" + FOLD
    assert fold("漢字漢字", 5) == "漢字" + FOLD
    assert fold("abcd", 4) == "abcd"
    assert fold("abcd", 0) == ""


@pytest.mark.parametrize(
    ("shown", "want"),
    [
        (number(None), "-"),
        (number(float("nan")), "-"),
        (number(float("inf")), "-"),
        (number(9412), "9,412"),
        (percent(None), "-"),
        (percent(91.2), "91 %"),
        (size(None), "-"),
        (size(0), "0 B"),
        (size(34 << 30), "34 GiB"),
        (size(2674 << 30), "2.61 TiB"),
        (size(1511 << 30), "1.48 TiB"),
        (size(636 << 20), "636 MiB"),
        (rate(458e6), "458 MB/s"),
        (rate(1.28e9), "1.28 GB/s"),
        (rate(0.0), "0 B/s"),
        (rate(None), "-"),
        (watts(412.4), "412 W"),
        (watts(2412), "2.41 kW"),
        (watts(None), "-"),
        (duration(None), "-"),
        (duration(3.7), "3 s"),
        (duration(242), "4 m 02 s"),
        (duration(8040), "2 h 14 m"),
        (duration(41 * 86400 + 3 * 3600), "41 d 3 h"),
        (duration(-1), "-"),
        (clock(9), "0:09"),
        (clock(1180), "19:40"),
        (clock(3723), "1:02:03"),
        (clock(None), "-"),
        (millis(0.012), "12 ms"),
        (millis(0.0004), "0.4 ms"),
        (millis(None), "-"),
        (plural(1, "alert"), "1 alert"),
        (plural(1200, "process", "processes"), "1,200 processes"),
        (short_card("NVIDIA RTX PRO 6000 Blackwell Server Edition"), "RTX PRO 6000 Blackwell Server"),
        (short_card(None), "-"),
        (short_command("/opt/vllm/bin/python -m vllm /x/y"), "python -m vllm /x/y"),
        (short_command(("/bin/a", "b")), "a b"),
        (short_command(None, "gone"), "gone"),
    ],
)
def test_numbers(shown: str, want: str) -> None:
    assert shown == want


@given(st.floats(min_value=0, max_value=1e15))
def test_sizes_and_rates_stay_narrow(value: float) -> None:
    assert len(size(value)) <= 9
    assert len(rate(value)) <= 9


@pytest.mark.parametrize(
    ("line", "cap", "cut"),
    [
        ("one two three", 13, "one two three"),
        ("one two three", 12, "one two …"),
        ("one two three", 8, "one …"),
        ("one-two-three", 8, "one-two…"),
        ("a bbbbbbbbbbbbbb", 10, "a bbbbbbb…"),
        ("日本 日本 日本", 10, "日本 …"),
    ],
)
def test_a_line_is_cut_between_words(line: str, cap: int, cut: str) -> None:
    assert fold_words(line, cap) == cut
    assert cells(fold_words(line, cap)) <= cap
