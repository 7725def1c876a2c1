"""What ``docker inspect`` and ``podman inspect`` say of a container. Pure."""

from __future__ import annotations

import json
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

_ANYWHERE = ("", "0.0.0.0", "::")  # noqa: S104 - compared, not bound


class Container(NamedTuple):
    """``ports`` are (container port, address, host port) that lead into it; ``address`` is its own on a bridge.

    ``driver`` is how its engine keeps its log: none and some others cannot be read back.
    """

    name: Optional[str] = None
    image: Optional[str] = None
    ports: Tuple[Tuple[int, str, int], ...] = ()
    address: Optional[str] = None
    driver: Optional[str] = None
    tty: bool = False


def container_of(text: str) -> Container:
    """The answer of an ``inspect``; an empty `Container` when it is none."""
    try:
        doc = json.loads(text)
    except (ValueError, RecursionError):
        return Container()
    one = doc[0] if isinstance(doc, list) and doc else doc
    if not isinstance(one, dict):
        return Container()
    config, host, net = _object(one, "Config"), _object(one, "HostConfig"), _object(one, "NetworkSettings")
    networks = [found for found in _object(net, "Networks").values() if isinstance(found, dict)]
    addresses = [net.get("IPAddress"), *(found.get("IPAddress") for found in networks)]
    driver = _object(host, "LogConfig").get("Type")
    name, image = one.get("Name"), one.get("ImageName") or config.get("Image")
    return Container(
        name.lstrip("/") if isinstance(name, str) and name.strip("/") else None,
        image if isinstance(image, str) and image else None,
        tuple(_published(_object(net, "Ports"))),
        next((found for found in addresses if isinstance(found, str) and found), None),
        driver if isinstance(driver, str) else None,
        config.get("Tty") is True,
    )


def _object(doc: Dict[str, Any], key: str) -> Dict[str, Any]:
    value = doc.get(key)
    return value if isinstance(value, dict) else {}


def _published(ports: Dict[str, Any]) -> List[Tuple[int, str, int]]:
    found = []
    for key, bindings in ports.items():
        number, _, protocol = key.partition("/")
        if not number.isdigit() or protocol not in ("", "tcp") or not isinstance(bindings, list):
            continue
        for binding in bindings:
            if isinstance(binding, dict) and str(binding.get("HostPort") or "").isdigit():
                address = str(binding.get("HostIp") or "")
                address = "127.0.0.1" if address in _ANYWHERE else address
                found.append((int(number), address, int(binding["HostPort"])))
    return found
