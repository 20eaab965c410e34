"""Asks servers over HTTP: registries, Kubeflow. Answers are short and in time, or are none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3

from privatekube_kfp.doctor.deadlines import within

_MOST_BYTES = 1_000_000
_OF_PROXIES = (403, 407, 502, 503, 504)
"""What proxies answer themselves: through one, it says nothing about the server."""


class NoAnswer(Exception):
    """Nothing came, or nothing that can be used; the message is a part of a sentence."""


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes
    """Empty for `HEAD`."""


def ask(method: str, url: str, headers: Mapping[str, str], seconds: float) -> Answer:
    """One request, through the proxy that the environment names for it. No redirect is followed."""
    try:
        answer = within(seconds, lambda: _ask(method, url, headers, seconds))
    except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
        raise NoAnswer(_cause(error) + _by_proxy(url)) from error
    if answer.status in _OF_PROXIES and proxy_for(url) is not None:
        raise NoAnswer(f"{answer.status}{_by_proxy(url)}")
    return answer


def _ask(method: str, url: str, headers: Mapping[str, str], seconds: float) -> Answer:
    proxy = proxy_for(url)
    pool = urllib3.PoolManager() if proxy is None else urllib3.ProxyManager(proxy)
    with pool:
        answer = pool.request(
            method,
            url,
            headers=headers,
            timeout=urllib3.Timeout(total=seconds),
            retries=False,
            redirect=False,
            preload_content=False,
        )
        try:
            body = answer.read(_MOST_BYTES + 1, decode_content=True)
        finally:
            answer.close()
    if len(body) > _MOST_BYTES:
        raise ValueError(f"it answers with more than {_MOST_BYTES:,} bytes")
    return Answer(answer.status, answer.headers, body)


def proxy_for(url: str) -> str | None:
    """The proxy that the environment names for a URL, if any. None is used on this machine."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if is_this_machine(host) or proxy_bypass(host):
        return None
    proxies = getproxies()
    return proxies.get(parts.scheme) or proxies.get("all")


def is_this_machine(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def _by_proxy(url: str) -> str:
    proxy = proxy_for(url)
    # Without the password that it may have in it.
    return f", by the proxy {urlsplit(proxy).hostname}" if proxy else ""


def _cause(error: BaseException) -> str:
    reason = getattr(error, "reason", None)
    said = " ".join(str(reason or error).split())
    return (said.rpartition(">: ")[2] or type(error).__name__)[:300]
