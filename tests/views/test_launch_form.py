"""A profile becomes fields and fields the same profile again, whatever is in it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagletui.profiles import Profile
from eagletui.views.launch_form import FIELDS, kind_of, profile_of, texts_of

WORDS = st.text(st.characters(blacklist_categories=["Cs", "Cc"]), min_size=1, max_size=20)
LINES = WORDS.filter(lambda text: text == text.strip())
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
GPUS = st.one_of(
    st.none(), st.just("all"), st.integers(1, 64), st.lists(st.integers(0, 63), min_size=1, unique=True).map(tuple),
    st.just(("GPU-0a", "GPU-1b")), st.just(("GPU-0a",)),
)  # fmt: skip


@given(
    LINES, st.none() | LINES, st.none() | st.integers(1, 64), st.none() | st.integers(1, 65535), GPUS, st.lists(WORDS),
    st.dictionaries(NAMES, WORDS, max_size=3), st.none() | LINES,
)  # fmt: skip
def test_there_and_back(
    model: str,
    drafter: str | None,
    k: int | None,
    port: int | None,
    gpus: object,
    args: list[str],
    env: dict[str, str],
    cwd: str | None,
) -> None:
    profile = Profile(
        "name", "vllm", model, drafter=drafter, k=k if drafter else None, port=port, gpus=gpus,  # type: ignore[arg-type]
        args=tuple(args), env=env, secrets=("A_TOKEN_X9",), cwd=cwd, smoke=False, log_cap=1 << 24, host="0.0.0.0",
    )  # fmt: skip
    assert set(texts_of(profile)) == {field.id for field in FIELDS}
    assert profile_of(profile, texts_of(profile)) == (profile, {})


def test_without_the_drafter_what_belonged_to_it_goes_too() -> None:
    profile = Profile("name", "vllm", "/m", drafter="/d", k=3, method="eagle3")
    made, problems = profile_of(profile, {**texts_of(profile), "drafter": ""})
    assert problems == {}
    assert made == Profile("name", "vllm", "/m")
    _, problems = profile_of(profile, {**texts_of(profile), "drafter": "", "k": "4"})
    assert list(problems) == ["k"]


def test_a_container_there_and_back_and_without_it() -> None:
    plain = Profile("name", "vllm", "/m", args=("--x", "a b"))
    boxed = replace(
        plain, container="docker", image="vllm/vllm-openai:v0.18.0", mounts=("/a b:/c:ro", "cache:/root/.cache"),
        container_args=("--shm-size", "32g", "-e", "A=b c"), entrypoint="image", graces=(60, 15.5, 30),
    )  # fmt: skip
    assert profile_of(boxed, texts_of(boxed)) == (boxed, {})
    assert profile_of(boxed, {**texts_of(boxed), "container": ""}) == (replace(plain, graces=(60, 15.5, 30)), {})
    made, problems = profile_of(plain, {**texts_of(plain), "container": "podman"})
    assert made is None
    assert list(problems) == ["image"]
    unit = Profile("name", "vllm", "/m", unit="vllm.service", unit_scope="user")
    assert profile_of(unit, texts_of(unit)) == (unit, {})
    assert profile_of(unit, {**texts_of(unit), "unit": ""}) == (Profile("name", "vllm", "/m"), {})
    made, problems = profile_of(unit, {**texts_of(unit), "args": "--x"})
    assert (made, list(problems)) == (None, ["args"])


def test_one_card_alone_is_told_from_a_number_of_cards() -> None:
    profile = Profile("name", "vllm", "/m", gpus=(3,))
    assert texts_of(profile)["gpus"] == "3,"
    made, _ = profile_of(profile, {**texts_of(profile), "gpus": "3"})
    assert made == replace(profile, gpus=3)


def test_where_a_profile_comes_from() -> None:
    for path, word in (
        ("/x/eagletui/assets/profiles/a.toml", "shipped"), ("/x/assets/lab/profiles/a.toml", "lab"),
        ("/home/me/.config/eagletui/profiles/a.toml", "yours"), ("/home/me/.config/eagletui/hosts/gpu/a.toml", "this host"),
    ):  # fmt: skip
        assert kind_of(Profile("a", "vllm", "/m", source=path)) == word


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("gpus", "²"), ("gpus", "0 ²"), ("gpus", "9" * 5000), ("gpus", "-1"), ("gpus", "0"), ("gpus", "1 1"), ("port", "²"),
        ("port", "٣"),
        ("port", "0"), ("port", "8e3"), ("tp", "9" * 5000), ("env", '"A B=1"'), ("env", "=x"), ("env", "A.B=1"), ("env", "A"),
        ("env", 'A="x'), ("args", "'x"), ("secrets", "HF_TOKEN=abc"), ("name", "../x"), ("name", ""), ("model", "  "),
        ("method", "Eagle 3"), ("max_model_len", "128k"), ("graces", "1 2"), ("graces", "a b c"), ("graces", "1 2 -3"),
        ("unit", "vllm"), ("unit", "../x.service"),
    ],
)  # fmt: skip
def test_whatever_is_typed_wrongly_is_told_at_its_field(field: str, text: str) -> None:
    profile = Profile("name", "vllm", "/m", drafter="/d", k=3)
    made, problems = profile_of(profile, {**texts_of(profile), field: text})
    assert made is None
    assert list(problems) == [field]
    assert "TOML" not in problems[field]


def test_keys_are_hidden_in_the_form_and_kept_in_the_profile() -> None:
    args = ("--api-key", "sk-1", "sk-2", "--port", "1", "--hf-token=hf_1", "-x")
    profile = Profile("p", "vllm", "/m", args=args, env={"MY_TOKEN": "t-1", "PLAIN": "seen"})
    texts = texts_of(profile)
    assert texts["args"] == "--api-key '***' '***' --port 1 '--hf-token=***' -x"
    assert texts["env"] == "MY_TOKEN='***' PLAIN=seen"
    made, problems = profile_of(profile, texts)
    assert not problems
    assert made is not None
    assert (made.args, made.env) == (args, {"MY_TOKEN": "t-1", "PLAIN": "seen"})
    changed = {**texts, "args": "--api-key sk-3 '***' -x", "env": "MY_TOKEN=t-2 PLAIN=new"}
    made, problems = profile_of(profile, changed)
    assert made is not None
    assert (made.args, made.env) == (("--api-key", "sk-3", "sk-2", "-x"), {"MY_TOKEN": "t-2", "PLAIN": "new"})
    made, problems = profile_of(profile, {**texts, "args": "--admin-api-key '***'"})
    assert made is None
    assert "write the key" in problems["args"]
