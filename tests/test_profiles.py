"""Profiles: what is read from where, what is told about mistakes, and that what is written reads back."""

from __future__ import annotations

import os
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagletui.labparts.paths import RECIPE, Lab
from eagletui.paths import assets_path
from eagletui.profiles import (
    Profile,
    host_folder,
    last_good,
    load_profiles,
    parse_profile,
    remember_good,
    save_profile,
    to_toml,
)

GOOD = 'engine = "vllm"\nmodel = "/m"\n'


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without any configuration, state or lab."""
    for name in ("CONFIG", "STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.delenv("EAGLETUI_LAB", raising=False)
    return tmp_path


def put(home: Path, name: str, text: str | bytes) -> Path:
    path = home / "config" / "eagletui" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_small_profile_and_its_defaults() -> None:
    profile, notices = parse_profile(GOOD, Path("/x/small.toml"))
    assert notices == []
    assert profile == Profile("small", "vllm", "/m")
    assert profile.as_dict() == {"name": "small", "engine": "vllm", "model": "/m", "host": "127.0.0.1", "smoke": True}


def test_every_key_is_read() -> None:
    text = """
    name = "all-keys"
    description = "everything"
    engine = "sglang"
    model = "/m"
    drafter = "/d"
    k = 4
    venv = "/v"
    host = "0.0.0.0"
    port = 30000
    tp = 2
    gpus = [0, "GPU-1234-ab"]
    max_model_len = 4096
    secrets = ["HF_TOKEN"]
    args = ["--one", "two words"]
    cwd = "/w"
    log_cap = "1.5 GiB"
    smoke = false
    [env]
    A = "x"
    B = 3
    """
    profile, notices = parse_profile(text, Path("p.toml"))
    assert notices == []
    assert profile is not None
    assert profile.as_dict() == {
        "name": "all-keys",
        "description": "everything",
        "engine": "sglang",
        "model": "/m",
        "drafter": "/d",
        "k": 4,
        "venv": "/v",
        "host": "0.0.0.0",
        "port": 30000,
        "tp": 2,
        "gpus": [0, "GPU-1234-ab"],
        "max_model_len": 4096,
        "env": {"A": "x", "B": "3"},
        "secrets": ["HF_TOKEN"],
        "args": ["--one", "two words"],
        "cwd": "/w",
        "log_cap": 1610612736,
        "smoke": False,
    }


@pytest.mark.parametrize(
    ("lines", "line", "what", "remedy"),
    [
        ("prot = 8000", 3, "unknown key 'prot'", "did you mean 'port'?"),
        ("zzzzz = 1", 3, "unknown key 'zzzzz'", "known: name, "),
        ("\nport = 70000", 4, "'port' is 70000", "expected a whole number, 1 to 65535"),
        ('port = "8000"', 3, "'port' is \"8000\"", "expected a whole number"),
        ("port = true", 3, "'port' is true", "expected a whole number"),
        ("tp = 0", 3, "'tp' is 0", "1 to 1024"),
        ('drafter = ""', 3, "'drafter' is \"\"", "text in quotes"),
        ('drafter = "a\\nb"', 3, "'drafter' is \"a\\nb\"", "in one line"),
        ("k = 3", 3, "'k' is set without a drafter", "remove k"),
        ('args = "--x"', 3, "'args' is \"--x\"", "a list of texts"),
        ("gpus = [0, 0]", 3, "'gpus' is [0, 0]", "each once"),
        ("gpus = []", 3, "'gpus' is []", '"all"'),
        ('gpus = "some"', 3, "'gpus' is \"some\"", '"all"'),
        ('secrets = ["A=b"]', 3, "'secrets' is [\"A=b\"]", "never their values"),
        ("[env]\nA = true", 3, "'env' is", 'NAME = "text"'),
        ('[env]\n"A B" = "x"', 3, "'env' is", 'NAME = "text"'),
        ('secrets = ["A"]\n[env]\nA = "1"', 3, "A is a secret and stands in [env] too", "keep it in secrets alone"),
        ("graces = [1, 2]", 3, "'graces' is [1, 2]", "three numbers of seconds"),
        ("graces = [1, 2, true]", 3, "'graces' is [1, 2, true]", "three numbers of seconds"),
        ('container = "lxc"\nimage = "x"', 3, "'container' is \"lxc\"", 'expected "docker" or "podman"'),
        ('container = "docker"', 3, "'image' is missing", "add image ="),
        ('image = "x"', 3, "'image' is set without a container", 'add container = "docker"'),
        ('mounts = ["/a:/b"]', 3, "'mounts' is set without a container", "or remove mounts"),
        ('container = "docker"\nimage = "x y"', 4, "'image' is \"x y\"", "an image such as"),
        ('container = "docker"\nimage = "x"\nmounts = ["~/a:/b"]', 5, "'mounts' is", "no ~"),
        ('container = "docker"\nimage = "x"\nmounts = ["a/b:/c"]', 5, "'mounts' is", "absolute paths"),
        ('container = "docker"\nimage = "x"\ncontainer_args = ["-d"]', 5, "'container_args' is", "which eagletui decides"),
        ('container = "docker"\nimage = "x"\ncontainer_args = ["--name=x"]', 5, "'container_args' is", "which eagletui decides"),
        (
            'container = "docker"\nimage = "x"\ncontainer_args = ["-e", "HF_TOKEN=x"]',
            5,
            "'container_args' is",
            "no value of HF_TOKEN",
        ),
        (
            'container = "docker"\nimage = "x"\ncontainer_args = ["--env=MY_KEY=x"]',
            5,
            "'container_args' is",
            "no value of MY_KEY",
        ),
        ('container = "docker"\nimage = "x"\nentrypoint = "sh"', 5, "'entrypoint' is \"sh\"", 'expected "image"'),
        ('unit = "vllm"', 3, "'unit' is \"vllm\"", "the name of a unit"),
        ('unit_scope = "user"', 3, "'unit_scope' is set without a unit", "add unit ="),
        ('unit = "vllm.service"\nargs = ["--x"]', 4, "'args' is set, and 'unit' too", "remove args, or unit"),
        ('unit = "vllm.service"\nunit_scope = "both"', 4, "'unit_scope' is \"both\"", '"system" or "user"'),
        ('log_cap = "2 MiBs"', 3, "'log_cap' is \"2 MiBs\"", '"200 MB"'),
        ("log_cap = 5", 3, "'log_cap' is 5", "at least 1 MiB"),
        ('smoke = "yes"', 3, "'smoke' is \"yes\"", "true or false"),
        ('venv = "/v"\npython = "/p"', 4, "'venv' and 'python' both say which program runs", "keep one"),
        ('name = "../x"', 3, "'name' is \"../x\"", "a name of letters"),
        ("k = ", 3, "is not TOML: invalid value", "mend that line"),
    ],
)
def test_a_mistake_is_told_with_line_and_remedy(lines: str, line: int, what: str, remedy: str) -> None:
    profile, notices = parse_profile(GOOD + lines + "\n", Path("/p/bad.toml"))
    assert profile is None
    assert len(notices) == 1
    assert notices[0].line == line
    assert what in notices[0].what
    assert remedy in notices[0].remedy
    assert str(notices[0]).startswith(f"/p/bad.toml:{line}: ")


def test_what_is_missing_is_told() -> None:
    profile, notices = parse_profile("tp = 8\n", Path("/p/a b.toml"))
    assert profile is None
    assert [notice.what for notice in notices] == [
        "'engine' is missing",
        "'model' is missing",
        "the file's name is no name for a profile: 'a b'",
    ]


def test_a_bad_profile_hides_no_good_one(home: Path) -> None:
    put(home, "profiles/good.toml", GOOD)
    broken = put(home, "profiles/broken.toml", "engine = ")
    binary = put(home, "profiles/binary.toml", b"\xff\xfe\x00")
    profiles, problems = load_profiles("gpu-host")
    assert "good" in profiles
    assert "broken" not in profiles
    assert {problem.file for problem in problems} == {broken, binary}


def test_a_broken_one_of_its_own_is_not_replaced_by_a_shipped_one_of_that_name(home: Path) -> None:
    """A typo in a copy must not launch the original, with its own paths and port."""
    put(home, "profiles/one-card-vllm.toml", GOOD + 'port = "x"\n')
    put(home, "hosts/h/lab.toml", GOOD + 'port = "x"\n')
    put(home, "profiles/lab.toml", GOOD)
    profiles, problems = load_profiles("h")
    assert "one-card-vllm" not in profiles
    assert "lab" not in profiles
    assert "one-card-vllm-eagle3" in profiles
    assert "lab" in load_profiles("other")[0]
    assert [problem.file.stem for problem in problems] == ["lab", "one-card-vllm"]


@pytest.mark.parametrize("lines", ["args = " + "[" * 5000 + "]" * 5000, "port = " + "9" * 5000])
def test_what_the_parser_itself_chokes_on_is_told_too(lines: str) -> None:
    profile, [notice] = parse_profile(GOOD + lines, Path("x.toml"))
    assert profile is None
    assert notice.what.startswith("is not TOML")


def test_the_mark_that_some_editors_put_before_the_text_is_no_mistake(home: Path) -> None:
    put(home, "profiles/marked.toml", b"\xef\xbb\xbf" + GOOD.encode())
    profiles, problems = load_profiles("h")
    assert "marked" in profiles
    assert not problems


def test_an_unreadable_file_is_told(home: Path) -> None:
    folder = home / "config" / "eagletui" / "profiles" / "folder.toml"
    folder.mkdir(parents=True)
    _, problems = load_profiles("gpu-host")
    assert [(problem.file, problem.what) for problem in problems] == [(folder, "cannot be read: Is a directory")]


def test_the_hosts_own_profile_wins_and_only_there(home: Path) -> None:
    put(home, "profiles/a.toml", GOOD + "port = 1\n")
    own = put(home, f"hosts/{host_folder('root@gpu-host:22')}/other-file.toml", 'name = "a"\n' + GOOD + "port = 2\n")
    assert load_profiles("root@gpu-host:22")[0]["a"].port == 2
    assert load_profiles("root@gpu-host:22")[0]["a"].source == str(own)
    assert load_profiles("elsewhere")[0]["a"].port == 1


def test_a_users_profile_wins_over_a_shipped_one(home: Path) -> None:
    assert load_profiles("h")[0]["kimi-k25-vllm"].tp == 8
    put(home, "profiles/kimi-k25-vllm.toml", GOOD)
    assert load_profiles("h")[0]["kimi-k25-vllm"].tp is None


def test_two_of_one_name_in_one_folder_are_told(home: Path) -> None:
    put(home, "profiles/a.toml", GOOD)
    second = put(home, "profiles/b.toml", 'name = "a"\n' + GOOD)
    profiles, problems = load_profiles("h")
    assert Path(profiles["a"].source).name == "a.toml"
    assert [(problem.file, problem.what) for problem in problems] == [(second, "a.toml has the name 'a' too")]


@pytest.mark.parametrize("host", ["../../etc", "", ".", "..", "a/b", "user@[::1]:22", "x\0y"])
def test_a_host_is_a_harmless_folder_name(host: str) -> None:
    name = host_folder(host)
    assert name
    assert not name.startswith(".")
    assert os.sep not in name
    assert "\0" not in name


def test_the_lab_is_there_only_when_built_and_only_here(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lab")
    assert "lab-eagle3" not in load_profiles("local", lab=lab)[0]
    lab.markers.mkdir(parents=True)
    (lab.markers / "drafter").write_text(RECIPE)
    profiles, problems = load_profiles("local", lab=lab)
    assert problems == []
    assert {"lab-plain", "lab-eagle3", "lab-slow"} <= set(profiles)
    assert profiles["lab-eagle3"].drafter == str(lab.drafter)
    assert profiles["lab-slow"].env["PYTHONPATH"] == str(lab.slow)
    assert "{lab}" not in str(profiles)
    assert "lab-eagle3" not in load_profiles("gpu-host", lab=lab)[0]


def test_a_users_own_come_first_then_the_labs_then_the_shipped_ones(home: Path, tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lab")
    lab.markers.mkdir(parents=True)
    (lab.markers / "drafter").write_text(RECIPE)
    put(home, "profiles/zebra.toml", GOOD)
    put(home, f"hosts/{host_folder('local')}/zeta.toml", GOOD)
    names = list(load_profiles("local", lab=lab)[0])
    shipped = sorted(path.stem for path in assets_path("profiles").glob("*.toml"))
    assert names == ["zeta", "zebra", "lab-eagle3", "lab-plain", "lab-slow", *shipped]


def test_the_last_good_profile_is_remembered_without_its_keys(home: Path) -> None:
    profile = Profile("a", "vllm", "/m", args=("--api-key", "sk-1", "-x"), env={"MY_TOKEN": "t-1", "PLAIN": "p"})
    remember_good("h", profile)
    assert not [path for path in home.rglob("*") if path.is_file() and any(key in path.read_text() for key in ("sk-1", "t-1"))]
    alone = last_good("h", "a")
    assert alone is not None
    assert (alone.args, alone.env) == (("--api-key", "***", "-x"), {"PLAIN": "p"})
    save_profile(profile, "h")
    again = last_good("h", "a")
    assert again is not None
    assert (again.args, again.env) == (profile.args, profile.env)


def test_the_last_good_profile_is_remembered_by_host(home: Path) -> None:
    profile = Profile("a", "vllm", "/m", args=("--x",))
    assert last_good("h", "a") is None
    remember_good("h", profile)
    assert last_good("h", "a") == profile
    assert last_good("other", "a") is None
    (home / "state" / "eagletui" / "last-good" / "h" / "a.toml").write_text("???")
    assert last_good("h", "a") is None


def test_a_saved_profile_is_read_back(home: Path) -> None:
    profile = Profile("mine", "vllm", "/m", drafter="/d", k=2, env={"A": "1"}, smoke=False)
    assert save_profile(profile) == home / "config" / "eagletui" / "profiles" / "mine.toml"
    save_profile(Profile("mine", "sglang", "/n"), "h")
    assert load_profiles("other")[0]["mine"] == profile
    assert load_profiles("h")[0]["mine"].engine == "sglang"


WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
LINE = st.text(st.characters(codec="utf-8", min_codepoint=32), min_size=1, max_size=20).filter(str.strip)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
PROFILES = st.builds(
    Profile,
    name=st.text(string.ascii_letters + string.digits, min_size=1, max_size=20),
    engine=st.sampled_from(["vllm", "sglang"]),
    model=LINE,
    description=LINE,
    drafter=LINE,
    k=st.integers(1, 64),
    port=st.none() | st.integers(1, 65535),
    gpus=st.none() | st.just("all") | st.integers(1, 64) | st.lists(st.integers(0, 63), min_size=1, unique=True).map(tuple),
    env=st.dictionaries(NAMES.map(str.lower), WORDS, max_size=3),
    secrets=st.lists(NAMES.map(str.upper).filter(lambda name: name != name.lower()), max_size=2, unique=True).map(tuple),
    args=st.lists(WORDS, max_size=4).map(tuple),
    log_cap=st.none() | st.integers(1 << 20, 1 << 40),
    smoke=st.booleans(),
)


@given(PROFILES)
def test_what_is_written_reads_back_the_same(profile: Profile) -> None:
    assert parse_profile(to_toml(profile), Path("other-name.toml")) == (profile, [])


def test_every_shipped_profile_is_sound() -> None:
    shipped = sorted(assets_path("profiles").glob("*.toml"))
    assert len(shipped) == 9
    for path in shipped:
        profile, notices = parse_profile(path.read_text(), path)
        assert notices == []
        assert profile is not None
        assert profile.name == path.stem
        assert profile.description
        assert profile.drafter is None or "eagle3" in profile.name


@pytest.mark.parametrize("name", ["kimi-k25-vllm-eagle3", "kimi-k25-docker-eagle3", "kimi-k26-docker-eagle3"])
def test_captured_graphs_cover_the_largest_verify_step(name: str) -> None:
    profile = load_profiles("h")[0][name]
    flags = dict(zip(profile.args, profile.args[1:], strict=False))
    assert profile.k is not None
    assert int(flags["--max-cudagraph-capture-size"]) >= int(flags["--max-num-seqs"]) * (profile.k + 1)


def test_in_docker_it_is_the_same_server() -> None:
    profiles = load_profiles("h")[0]
    plain, boxed = (profiles[f"kimi-k25-{way}-eagle3"].as_dict() for way in ("vllm", "docker"))
    differing = {key for key in plain.keys() | boxed.keys() if plain.get(key) != boxed.get(key)}
    assert differing == {"name", "description", "container", "image", "mounts", "container_args"}


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_with_and_without_drafter_differ_in_nothing_else(engine: str) -> None:
    """A drafter is judged against the baseline: anything else that differs would be counted for or against it."""
    profiles = load_profiles("h")[0]
    plain, drafting = (profiles[f"kimi-k25-{engine}{end}"].as_dict() for end in ("", "-eagle3"))
    differing = {key for key in plain.keys() | drafting.keys() if plain.get(key) != drafting.get(key)}
    allowed = {"name", "description", "drafter", "k"}
    assert differing - allowed in (set(), {"args"})
    assert set(drafting["args"]) - set(plain["args"]) <= {"--max-cudagraph-capture-size", "256"}
    assert not set(plain["args"]) - set(drafting["args"])
