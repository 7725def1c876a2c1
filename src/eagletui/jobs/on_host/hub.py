"""A repository of the hub as the source of a download: its files by huggingface_hub, their bytes from where they stopped.

huggingface_hub begins a file anew after each interruption; a shard has 20 GB. So it is asked for the list, the addresses and the
token's header, and the bytes are fetched here, with a range. The token goes to the hub's own host alone, never along a redirect.
"""

from __future__ import annotations

import http.client
import os
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from importlib import import_module
from typing import Any, BinaryIO, Dict, Iterator, Optional, Tuple

from eagletui.jobs.manifest import Entry, Manifest, safe
from eagletui.jobs.on_host.telling import Teller

CHUNK = 1 << 20
TIMEOUT = 60.0
TRIES = 8
"""How often in a row a fetch may fail without a byte before it is given up."""
HOPS = 6
_SLEEP = 30.0


class Refused(ValueError):
    """The hub does not give it; the text says why and what to do."""


class Hub:
    """``repo`` at ``revision``; what that stood for at the first listing is kept (`pin`)."""

    def __init__(self, repo: str, revision: str, kind: str, teller: Teller) -> None:
        try:
            self._lib: Any = import_module("huggingface_hub")
        except ImportError as error:
            raise Refused("this python has no huggingface_hub (%s): install it there, or name another python" % error) from None
        self._repo, self._revision, self._kind, self._teller = repo, revision, kind, teller
        self._commit: Optional[str] = None
        self._lock, self._failing = threading.Lock(), 0

    def inputs(self) -> Dict[str, Any]:
        return {"repo": self._repo, "revision": self._revision, "repo_type": self._kind}

    def listing(self) -> Manifest:
        """Raises `Refused`."""
        try:
            info = self._lib.HfApi().repo_info(
                self._repo, repo_type=self._kind, revision=self._revision, files_metadata=True, timeout=TIMEOUT
            )
        except Exception as error:  # noqa: BLE001 - its classes differ from version to version; told in words
            raise Refused(_words(error, self._repo, self._revision)) from None
        files: Dict[str, Entry] = {}
        for item in info.siblings or ():
            name, size, lfs = item.rfilename, item.size, item.lfs
            if not safe(name):
                raise Refused("%s has a file called %r, which is no name for one" % (self._repo, name))
            if size is None:
                raise Refused("the hub does not tell the size of %s" % name)
            sha256 = None if lfs is None else lfs["sha256"] if isinstance(lfs, dict) else lfs.sha256
            files[name] = Entry(name, int(size), sha256, None if sha256 else item.blob_id)
        return Manifest("%s@%s" % (self._repo, self._revision), info.sha, files)

    def pin(self, wanted: Manifest) -> None:
        self._commit = wanted.commit

    def resumable(self, entry: Entry, file: BinaryIO, have: int, progress: Any) -> int:
        return have  # a commit's files never change, and the hash tells

    def open(self, entry: Entry, offset: int) -> Iterator[bytes]:
        failures = 0
        while offset < entry.size:
            try:
                with self._get(entry, offset) as answer:
                    if offset and answer.status != 206:
                        self._skip(answer, offset)  # a server that knows no ranges begins anew
                    while offset < entry.size:
                        data = answer.read1(min(CHUNK, entry.size - offset))  # what has come, not a whole piece
                        if not data:
                            raise http.client.IncompleteRead(b"", entry.size - offset)
                        offset += len(data)
                        if failures:
                            failures = 0
                            self._tell(None)
                        yield data
            except (OSError, http.client.HTTPException) as error:
                failures += 1
                if (isinstance(error, urllib.error.HTTPError) and error.code in (401, 403, 404)) or failures >= TRIES:
                    raise Refused(_words(error, self._repo, self._revision, entry.name)) from None
                self._tell("%s: %s; attempt %d of %d" % (entry.name, _short(error), failures + 1, TRIES))
                time.sleep(min(_SLEEP, 2.0**failures))

    def _tell(self, text: Optional[str]) -> None:
        with self._lock:
            self._teller.trouble("network", text)

    @staticmethod
    def _skip(answer: Any, count: int) -> None:
        while count:
            data = answer.read(min(CHUNK, count))
            if not data:
                raise http.client.IncompleteRead(b"", count)
            count -= len(data)

    def _get(self, entry: Entry, offset: int) -> Any:
        """The bytes from ``offset``; the caller closes it. Follows redirects by hand: a token must not follow them."""
        url = self._lib.hf_hub_url(self._repo, entry.name, repo_type=self._kind, revision=self._commit or self._revision)
        own = _origin(url)
        if own[0] not in ("http", "https"):
            raise Refused("HF_ENDPOINT should be an address of http or https, and leads to %s" % url)
        headers = {str(name): str(value) for name, value in self._lib.utils.build_hf_headers().items()}
        headers.update({"Accept-Encoding": "identity", "Range": "bytes=%d-" % offset})
        opener = urllib.request.build_opener(_NoRedirect)
        for _ in range(HOPS):
            sent = {name: value for name, value in headers.items() if _origin(url) == own or name.lower() != "authorization"}
            request = urllib.request.Request(url, headers=sent)  # noqa: S310 - the scheme is looked at below
            try:
                return opener.open(request, timeout=TIMEOUT)
            except urllib.error.HTTPError as error:
                where = error.headers.get("Location") if error.code in (301, 302, 303, 307, 308) else None
                if where is None:
                    raise
                error.close()
                url = urllib.parse.urljoin(url, where)
                if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
                    raise Refused("the hub sends us to %s" % url.split("?")[0]) from None
        raise Refused("the hub sends us in a circle for %s" % entry.name)

    def wrong(self, entry: Entry, found: Any, part: str) -> Optional[str]:
        if entry.sha256 is not None and found.sha256.hexdigest() != entry.sha256:
            return "%s: its SHA-256 is not what the hub tells: the network or this host's disk or memory spoils it" % entry.name
        if entry.sha1 is not None and found.sha1.hexdigest() != entry.sha1:
            return "%s: its hash is not what the hub tells" % entry.name
        return None

    def finish(self, entry: Entry, part: str) -> None:
        os.chmod(part, 0o644)

    def clean(self, output: str) -> None:
        """Nothing is left beside the files."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any) -> None:
        return None


def _origin(url: str) -> Tuple[str, str]:
    parts = urllib.parse.urlsplit(url)
    return parts.scheme, parts.netloc


def _short(error: BaseException) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return "HTTP %d" % error.code
    reason = getattr(error, "reason", None) or error
    return (str(reason) or type(error).__name__).splitlines()[0][:200]


def _words(error: BaseException, repo: str, revision: str, name: str = "") -> str:
    """Why the hub refused, and what to do. ``error`` is huggingface_hub's or one of HTTP."""
    kind = type(error).__name__
    code = getattr(error, "code", None) or getattr(getattr(error, "response", None), "status_code", None)
    token = (
        'secrets = ["HF_TOKEN"] hands your token over' if not os.environ.get("HF_TOKEN") else "is HF_TOKEN one that may read it?"
    )
    if kind == "GatedRepoError" or code == 403:
        return "%s is gated: accept its terms on its page, and let the token be of that account; %s" % (repo, token)
    if kind == "RevisionNotFoundError":
        return "%s has no revision %r" % (repo, revision)
    if kind == "RepositoryNotFoundError" or code in (401, 404):
        what = "%s of %s" % (name, repo) if name else repo
        return "the hub has no %s, or it is private: look at the name; %s" % (what, token)
    if kind == "OfflineModeIsEnabled":
        return "HF_HUB_OFFLINE is set: take it out of [env]"
    return (
        "the hub does not answer for %s: %s - is there a way to it from here (HF_ENDPOINT, HTTPS_PROXY)? run it again, it goes on"
        % (name or repo, _short(error))
    )
