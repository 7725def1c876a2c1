"""The verbs and their arguments: one table, from which the parser, the help and docs/commands.md come."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from eagletui import __version__

TARGET = "[USER@]HOST[:PORT], an alias of ~/.ssh/config, or `local` for this machine"


class Verb(NamedTuple):
    """One command: its ``name``, one line of ``help``, the ``module`` whose ``run(options) -> int`` does it, its arguments."""

    name: str
    help: str
    module: str
    arguments: Callable[[argparse.ArgumentParser], None]


class Parser(argparse.ArgumentParser):
    """An `ArgumentParser` whose errors are one line with a remedy, exit code 2."""

    def error(self, message: str) -> NoReturn:
        print(f"eagletui: arguments: {_reworded(message)} - see `{self.prog} --help`", file=sys.stderr)
        self.exit(2)


def _reworded(message: str) -> str:
    if message.startswith("argument COMMAND: invalid choice: "):
        word = message.split("'")[1]
        from difflib import get_close_matches

        near = get_close_matches(word, [verb.name for verb in VERBS], 1)
        return f"no command {word!r}" + (f", did you mean {near[0]!r}?" if near else "")
    if message == "the following arguments are required: COMMAND":
        return "no command given"
    return message.replace("the following arguments are required", "missing")


def _connection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="TARGET", help=TARGET)
    _reaching(parser)


def _reaching(parser: argparse.ArgumentParser) -> None:
    ssh = parser.add_argument_group("reaching the host")
    ssh.add_argument("--identity", metavar="FILE", help="private key to try before all others")
    ssh.add_argument("--no-ssh-config", action="store_true", help="do not read ~/.ssh/config")
    ssh.add_argument("--strict", action="store_true", help="never ask: refuse a host whose key is not known")


def given_by(options: argparse.Namespace) -> dict[str, Any]:
    """What the command line says about a host's settings; what it does not say is not in it."""
    given: dict[str, Any] = {}
    if options.identity:
        given["identity"] = options.identity
    if options.no_ssh_config:
        given["ssh_config"] = False
    if options.strict:
        given["strict"] = True
    if getattr(options, "readonly", False):
        given["readonly"] = True
    return given


def _connect(parser: argparse.ArgumentParser) -> None:
    _connection(parser)
    parser.add_argument("--readonly", action="store_true", help="watch only: nothing can be started, stopped or changed")


def _with_json(parser: argparse.ArgumentParser) -> None:
    _connection(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")


def _lab(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        metavar="ACTION",
        choices=("up", "status", "down", "remove"),
        help="`up` builds it or goes on with a build, `status` tells what is there, `down` ends its servers, `remove` deletes it",
    )
    parser.add_argument("--dir", metavar="DIR", help="where the lab lies, instead of ~/.cache/eagletui/lab")
    parser.add_argument(
        "--train", action="store_true", help="with `up`: train the drafter here instead of taking the one that comes along"
    )
    parser.add_argument("--yes", action="store_true", help="with `remove`: do not ask")


JOB = "its id, the beginning of one, or its name"


def _launch(parser: argparse.ArgumentParser) -> None:
    _connection(parser)
    parser.add_argument("profile", metavar="PROFILE", help="the name of a profile; `eagletui profiles TARGET` lists them")
    parser.add_argument("--wait", action="store_true", help="follow the load until the server is ready or has failed")
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[],
        help="change the profile for this launch: port=8001, args+='--seed 1', env.NAME=text; an empty value takes a key away;"
        " repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--force", action="store_true", help="launch although preflight found what would stop it, or others use its cards"
    )
    parser.add_argument("--dry-run", action="store_true", help="print what would be run, and start nothing")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")


def _run(parser: argparse.ArgumentParser) -> None:
    _connection(parser)
    parser.add_argument(
        "jobfile", metavar="JOBFILE", nargs="?",
        help="a job file's path (with a / or .toml in it), or its name; without one they are listed",
    )  # fmt: skip
    parser.add_argument(
        "-f", "--wait", "--follow", dest="wait", action="store_true", help="follow the job until it has ended; see the exit codes"
    )
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[],
        help="change the file for this run: output=/data/x, argv+='--seed 1', env.NAME=text, step.ID.epochs=1 in a pipeline;"
        " an empty value takes a key away; repeatable",
    )  # fmt: skip
    parser.add_argument("--force", action="store_true", help="run it although others use its cards")
    parser.add_argument("--dry-run", action="store_true", help="print what would be run, and start nothing")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")


def _preflight(parser: argparse.ArgumentParser) -> None:
    _connection(parser)
    parser.add_argument("profile", metavar="PROFILE", help="the name of a profile; `eagletui profiles TARGET` lists them")
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="change the profile for this look, as for `launch`; repeatable",
    )
    parser.add_argument("--all", action="store_true", help="tell notes as fully as warnings")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")


def _patch(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        metavar="ACTION",
        choices=("list", "check", "apply", "revert"),
        help="`list` tells what there is, `check` in what state it is there, `apply` and `revert` change the engine's files",
    )
    _connection(parser)
    parser.add_argument("env", metavar="ENV", help="the engine's environment: a venv, a python, or the name of a profile")
    parser.add_argument("name", metavar="NAME", nargs="?", help="one patch; by default all that are for this engine")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")


def _logs(parser: argparse.ArgumentParser) -> None:
    _connection(parser)
    parser.add_argument("job", metavar="JOB", help=JOB)
    parser.add_argument("-f", "--follow", action="store_true", help="go on with what comes, until the job has ended or ctrl+c")
    parser.add_argument("--lines", metavar="N", type=_count, default=100, help="how many of the last lines to print first (100)")
    parser.add_argument("--raw", action="store_true", help="the bytes as they are, with whatever could steer a terminal")


def _count(word: str) -> int:
    number = int(word)
    if number < 0:
        raise ValueError(word)
    return number


_count.__name__ = "number of lines"


def _kill(parser: argparse.ArgumentParser) -> None:
    _connection(parser)
    parser.add_argument("job", metavar="JOB", nargs="?", help=JOB + "; a server that was found on the host has one too")
    parser.add_argument(
        "--pid", metavar="PID", type=_pid, action="append", default=[],
        help="end this process alone, which no job has (nothing of its children); repeatable",
    )  # fmt: skip
    parser.add_argument("--now", action="store_true", help="without the time to end in good order: SIGKILL to all of it")
    parser.add_argument("--yes", action="store_true", help="do not ask; only a job of your own is ended so")
    parser.add_argument(
        "--confirm", metavar="TEXT",
        help="instead of typing it: the name of what eagletui or you did not start, the numbers of processes",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text; needs --yes")


def _pid(word: str) -> int:
    number = int(word)
    if not 0 < number < 1 << 30:
        raise ValueError(word)
    return number


_pid.__name__ = "process number"


def _remove(parser: argparse.ArgumentParser) -> None:
    _connection(parser)
    parser.add_argument("job", metavar="JOB", help=JOB)


def _why(parser: argparse.ArgumentParser) -> None:
    _connection(parser)
    parser.add_argument("job", metavar="JOB", help=JOB)
    parser.add_argument(
        "--watch", metavar="SECONDS", type=_count, default=70,
        help="how long to watch before it is judged (70): most patterns have to last a minute; it ends as soon as one shows",
    )  # fmt: skip
    parser.add_argument("--canary", action="store_true", help="ask the server for one token, and wait up to 60 s for it")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")


def _leftovers(parser: argparse.ArgumentParser) -> None:
    _connection(parser)
    parser.add_argument("--remove", action="store_true", help="remove what is listed, as far as nobody uses it")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")


def _profiles(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="TARGET", help="the host whose profiles are meant; it is not connected to")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")


def _phases(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("log", metavar="LOG", help="a log of vLLM or SGLang on this machine, or - for stdin")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")


def _diagnose(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "log",
        metavar="LOG",
        help="a log of vLLM or SGLang on this machine, plain or gzip, or - for stdin; with --job, the TARGET",
    )
    parser.add_argument("--job", metavar="JOB", help=f"diagnose this job of the host instead: {JOB}")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    _reaching(parser)


def _bench(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        metavar="ACTION",
        choices=("run", "list", "report", "compare"),
        help="`run` TARGET PLAN measures, `list` TARGET tells what was, `report` RESULT shows one, `compare` A B shows two",
    )
    parser.add_argument(
        "words", metavar="ARG", nargs="+",
        help="what the action takes: TARGET is the host, PLAN a plan's file; RESULT, A and B are a result.json, a verdict.json or"
        " the output of a plan, on this machine or, with --on, of a host, where a job's id or name will do",
    )  # fmt: skip
    parser.add_argument("--on", metavar="TARGET", help="the host that RESULT, A and B lie on")
    parser.add_argument(
        "--synthetic",
        action="store_true",
        help="with `run`: act acceptance out, to know what a drafter needs before any training",
    )
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help="with `run`: change the plan; repeatable")
    parser.add_argument("--wait", action="store_true", help="with `run`: follow it to its end, and print the report")
    parser.add_argument("--dry-run", action="store_true", help="with `run`: print what would be done, and start nothing")
    parser.add_argument("--force", action="store_true", help="with `run`: although others use its cards")
    parser.add_argument("--md", metavar="FILE", help="with `report`: write it as Markdown, with plots")
    parser.add_argument("--csv", action="store_true", help="print comma-separated values instead of text")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    parser.add_argument(
        "--noise", metavar="PERCENT", type=float, default=3.0,
        help="with `compare`: what is slower by less is no regression, whatever its interval says (3)",
    )  # fmt: skip
    _reaching(parser)


VERBS = (
    Verb("connect", "open the dashboard of a host", "eagletui.cli.connect", _connect),
    Verb("status", "print one snapshot: GPUs, host, servers, jobs, alerts", "eagletui.cli.status", _with_json),
    Verb("preflight", "tell what would stop a launch, before it is tried", "eagletui.cli.preflight", _preflight),
    Verb("launch", "start a server from a profile", "eagletui.cli.launch", _launch),
    Verb("run", "start a job from a job file: download, train, benchmark ...", "eagletui.cli.run", _run),
    Verb("bench", "measure whether a drafter pays on a host: run a plan, list, report, compare", "eagletui.cli.bench", _bench),
    Verb("jobs", "list what runs on a host, and what ran", "eagletui.cli.jobs", _with_json),
    Verb("logs", "print the end of a job's log, and follow it", "eagletui.cli.logs", _logs),
    Verb("kill", "end a job, and prove that ports and memory are free again", "eagletui.cli.jobs", _kill),
    Verb("remove", "delete the record and the log of a job that has ended", "eagletui.cli.jobs", _remove),
    Verb("leftovers", "list what ended jobs left in shared memory and /tmp, and remove it", "eagletui.cli.leftovers", _leftovers),
    Verb("profiles", "list the profiles that can be launched on a host", "eagletui.cli.jobs", _profiles),
    Verb("why", "does a server work or hang: the pattern, what was measured, where its processes are", "eagletui.cli.why", _why),
    Verb("phases", "read an engine's log: phases, progress, ready or failed", "eagletui.cli.phases", _phases),
    Verb("diagnose", "say why a launch failed: cause, the lines that show it, what to do", "eagletui.cli.diagnose", _diagnose),
    Verb("doctor", "check what works between here and a host, and say how to mend the rest", "eagletui.cli.doctor", _with_json),
    Verb("patch", "named, reversible changes to an installed engine's source", "eagletui.cli.patch", _patch),
    Verb("lab", "build, show and remove a tiny real engine on this machine", "eagletui.cli.lab", _lab),
)


def build_parser() -> Parser:
    """The whole parser; ``options.verb`` names the command."""
    parser = Parser(
        prog="eagletui",
        description="A terminal dashboard for one remote multi-GPU host, over one SSH connection.",
        epilog="Watching installs nothing on the host and needs no root. Exit codes: docs/commands.md.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"eagletui {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="COMMAND", required=True, parser_class=Parser)
    for verb in VERBS:
        verb.arguments(verbs.add_parser(verb.name, help=verb.help, description=verb.help[0].upper() + verb.help[1:] + "."))
    return parser
