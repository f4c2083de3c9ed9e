"""Which requests are answered at all (pure): none that a page of another site causes, in a person's browser.

A page of any site may send requests to this machine's loopback addresses from the browser that shows it. Three checks
stop it: the Host has to name this listener (a name that the page's owner has pointed at 127.0.0.1 does not), the Origin
has to be ours, and a request that changes something has a JSON body, which a form cannot send.
"""

import ipaddress
import re
from collections.abc import Collection

from barnabas.console.exchange import JSON, Answer, HttpRequest, error_answer

LOOPBACK_NAMES = frozenset({"localhost"})
SAFE_METHODS = frozenset({"GET", "HEAD"})
HOST_AND_PORT = re.compile(r"(?:\[([^\[\]]*)\]|([^:\[\]]*))(?::[0-9]*)?")
OWN_SITES = frozenset({None, "same-origin", "none"})  # "none": a person typed the address, or no browser asks


def refusal(request: HttpRequest, names: Collection[str]) -> Answer | None:
    """Why this request is not answered; None if it is. `names` are the host names of the listener, in lower case."""
    # The browser writes this header itself, with the name that it has asked for, so a page cannot forge it.
    host = host_of(request.headers.get("host", ""))
    if not (host in LOOPBACK_NAMES or host in names or _is_address(host)):
        return error_answer(421, f"{host!r} is no name of this listener")
    # Older browsers send Origin alone, and only with what may change something; newer ones send both.
    if not request.is_same_site() or not _is_own_page(request):
        return error_answer(403, "a page of another site may not ask this")
    if request.method not in SAFE_METHODS:
        # A form can send three types of content, and this is none of them. DELETE is a method that no form has.
        content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if request.method != "DELETE" and content_type != JSON:
            return error_answer(415, f"a {request.method} has a body of content-type {JSON}")
    return None


def _is_own_page(request: HttpRequest) -> bool:
    if request.headers.get("sec-fetch-site") in OWN_SITES:
        return True
    # A link elsewhere may lead to the page: what the browser shows then is not visible to the site with the link.
    return request.method in SAFE_METHODS and request.headers.get("sec-fetch-mode") == "navigate"


def host_of(host: str) -> str:
    """The host of a Host header without its port, in lower case: "[::1]:9644" is "::1"; all of what is none."""
    found = HOST_AND_PORT.fullmatch(host)
    return (found[1] or found[2]).lower() if found else host.lower()


def _is_address(host: str) -> bool:
    # The owner of a name can point it at any address (DNS rebinding), but an address always means itself.
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there."""
    if host in LOOPBACK_NAMES:
        return True
    return _is_address(host) and ipaddress.ip_address(host).is_loopback
