"""An engine's server: vLLM or SGLang, with or without a drafter. A success when it became ready and was ended by us."""

from __future__ import annotations

from typing import Any, Mapping, Optional, Sequence, Tuple

from eagletui.engines.command import DEFAULT_PORTS, CommandError, parse_command, serve_command
from eagletui.engines.readiness import RULES
from eagletui.jobs import container
from eagletui.jobs.base import BadJob, Kind, Spec, check_spec, secret_name, status_words
from eagletui.jobs.hidden import key_by_environment

ENGINE_NAMES = {"vllm": "vLLM", "sglang": "SGLang"}


_ANY_ADDRESS = ("0.0.0.0", "::", "")  # noqa: S104 - where a server listens is compared, nothing is bound


class Serve(Kind):
    """The profile is a server's (see `serve_command`): engine, model, drafter, k, port, args, env, log_cap, smoke ...

    With ``container`` it runs in one (see `container.run_argv`); ``devices`` then are the cards' names for that engine, by
    default their UUIDs.
    """

    name = "serve"
    server = True

    def spec(self, profile: Mapping[str, Any], job: str, cards: Sequence[str] = ()) -> Spec:
        # a container sees only the cards that it was given, so it needs no variable that names them
        chosen = cards if profile.get("gpus") not in (None, "all") and not profile.get("container") else None
        try:
            command = serve_command(profile, chosen)
        except CommandError as error:
            raise BadJob(str(error)) from None
        facts = parse_command(command.argv)
        engine = str(profile["engine"])
        # a command of the user's own may start no server that we know: then the profile's word counts
        port = facts.port if facts is not None else profile.get("port") or DEFAULT_PORTS[engine]
        host = facts.host if facts is not None else str(profile.get("host") or "127.0.0.1")
        rules = RULES[engine]
        env = dict(command.env)
        argv = key_by_environment(engine, command.argv, env)
        spec: Spec = {
            "id": job,
            "kind": self.name,
            "name": str(profile.get("name") or job),
            "argv": argv,
            "env": env,
            "server": True,
            "engine": engine,
            "model": profile["model"],
            "port": port,
            "gpus": list(cards),
            "ready": {
                "health": rules.path,
                "after_log": rules.log_needed,
                "smoke": bool(profile.get("smoke", True)),
                "version": rules.version,
                "address": "127.0.0.1" if host in _ANY_ADDRESS else host,
            },
        }
        if profile.get("drafter"):
            spec["drafter"] = profile["drafter"]
            spec["k"] = profile.get("k") or (facts.k if facts is not None else None)
        for key in ("cwd", "log_cap", "graces", "operator"):
            if profile.get(key) is not None:
                spec[key] = profile[key]
        spec["profile"] = profile.get("name")
        if profile.get("container"):
            _into_container(spec, profile, profile.get("devices") or cards)
        return check_spec({key: value for key, value in spec.items() if value is not None})

    def title(self, spec: Mapping[str, Any]) -> str:
        engine = ENGINE_NAMES.get(str(spec.get("engine")), str(spec.get("engine") or "server"))
        text = "%s %s" % (engine, spec.get("model") or "")
        if spec.get("drafter"):
            text += " + %s" % spec["drafter"]
            if spec.get("k"):
                text += " k=%d" % spec["k"]
        return text.strip() + (" :%d" % spec["port"] if spec.get("port") else "")

    def verdict(self, spec: Mapping[str, Any], state: Mapping[str, Any], killed: bool) -> Tuple[Optional[bool], str]:
        ready, rc = state.get("ready_seconds"), state.get("rc")
        if state.get("state") == "oom":
            return False, "killed by the kernel for memory"
        if killed:
            return (True, "served, ended on request") if ready is not None else (None, "ended on request before it was ready")
        if state.get("first_error"):
            return False, str(state["first_error"])
        if ready is None:
            return False, "never ready: %s" % status_words(rc)
        return rc == 0, "was ready, then ended by itself: %s" % status_words(rc)


def _into_container(spec: Spec, profile: Mapping[str, Any], devices: Sequence[str]) -> None:
    """Have the spec start the container that runs its program; the variables stand in that command, secrets by name alone."""
    if not profile.get("image"):
        raise BadJob("image: a container needs one")
    program, env = spec["argv"], spec["env"]
    secrets = [*(profile.get("secrets") or ()), *(name for name in env if secret_name(name))]
    spec["container"] = container.about(profile, spec["id"], program)
    spec["argv"] = container.run_argv(profile, spec["id"], program, env, secrets, devices)
    spec["env"] = {name: value for name, value in env.items() if secret_name(name)}
    spec["runner"] = profile["container"]
    spec.pop("cwd", None)  # it is one inside
