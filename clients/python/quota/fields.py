"""What an HTTP answer says about coming again: Retry-After (RFC 9110) and RateLimit
(draft-ietf-httpapi-ratelimit-headers-10), which is a structured field (RFC 9651)."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import Callable, NamedTuple

LONGEST = 31_536_000  # seconds; no stated wait is longer than a year


class Remaining(NamedTuple):
    """A member of a RateLimit field."""

    name: str
    r: int  # units that remain
    t: int | None  # seconds until there are more, where that is said


# The bare items of RFC 9651. A number that is too long leaves digits over, which no separator follows.
_STRING = re.compile(r'"(?:[ !#-\[\]-~]|\\["\\])*"')
_INTEGER = re.compile(r"-?[0-9]{1,15}")
_ITEM = re.compile(
    "|".join(
        (
            _STRING.pattern,
            r"-?[0-9]{1,12}\.[0-9]{1,3}",  # decimal
            _INTEGER.pattern,
            r"[A-Za-z*][!#$%&'*+\-.^_`|~:/0-9A-Za-z]*",  # token
            r":[A-Za-z0-9+/=]*:",  # bytes
            r"\?[01]",  # boolean
            r"@-?[0-9]{1,15}",  # date
            r'%"(?:[ !#$&-~]|%[0-9a-f]{2})*"',  # display string
        )
    )
)
_PARAMETER = re.compile(rf" *; *([a-z*][a-z0-9_\-.*]*)(?:=({_ITEM.pattern}))?")
_COMMA = re.compile(r"[ \t]*,[ \t]*")


def rate_limit(lines: list[str]) -> list[Remaining] | None:
    """The members of a RateLimit field; None where it is malformed, and so says nothing."""
    text = ", ".join(lines).strip(" ")
    members: list[Remaining] = []
    at = 0
    while at < len(text):
        if members:
            comma = _COMMA.match(text, at)
            if not comma:
                return None
            at = comma.end()
        name = _STRING.match(text, at)
        if not name:
            return None
        at = name.end()
        parameters: dict[str, str | None] = {}
        while parameter := _PARAMETER.match(text, at):
            parameters[parameter[1]] = parameter[2]
            at = parameter.end()
        r, t = _count(parameters.get("r")), _count(parameters.get("t"))
        if r is None or ("t" in parameters and t is None):
            return None
        members.append(Remaining(re.sub(r"\\(.)", r"\1", name[0][1:-1]), r, t))
    return members


def _count(item: str | None) -> int | None:
    return int(item) if item and _INTEGER.fullmatch(item) and int(item) >= 0 else None


_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_CLOCK = r"(?P<h>[0-9]{2}):(?P<min>[0-9]{2}):(?P<s>[0-9]{2})"
_DATES = (  # of RFC 9110: the one that is sent, and two that must still be understood
    re.compile(rf"[A-Z][a-z]{{2}}, (?P<d>[0-9]{{2}}) (?P<mon>[A-Z][a-z]{{2}}) (?P<y>[0-9]{{4}}) {_CLOCK} GMT"),
    re.compile(rf"[A-Z][a-z]{{5,8}}, (?P<d>[0-9]{{2}})-(?P<mon>[A-Z][a-z]{{2}})-(?P<y>[0-9]{{2}}) {_CLOCK} GMT"),
    re.compile(rf"[A-Z][a-z]{{2}} (?P<mon>[A-Z][a-z]{{2}}) (?P<d>[ 0-9][0-9]) {_CLOCK} (?P<y>[0-9]{{4}})"),
)


def _retry_after(lines: list[str], now: float) -> float | None:
    if len(lines) != 1:
        return None
    text = lines[0].strip(" \t")
    if re.fullmatch(r"[0-9]+", text):
        return min(int(text[-20:]) if len(text) <= 20 else LONGEST, LONGEST)
    for pattern in _DATES:
        if not (date := pattern.fullmatch(text)):
            continue
        year = int(date["y"])
        if year < 100:
            year += 1900 if year >= 69 else 2000
        try:
            month = _MONTHS.index(date["mon"]) + 1
            day, hour, minute, second = (int(date[part]) for part in ("d", "h", "min", "s"))
            at = datetime(year, month, day, hour, minute, second, tzinfo=timezone.utc)
        except ValueError:
            return None  # no such day or hour
        return min(max(at.timestamp() - now, 0), LONGEST)
    return None


def stated_wait(header: Callable[[str], list[str]], now: float) -> float | None:
    """How many seconds an answer asks its caller to stay away, 0 to LONGEST; None where it does not say.

    header returns the lines of a header, whatever the case of its name; now is in Unix seconds.
    """
    after = _retry_after(header("Retry-After"), now)
    if after is not None:
        return after
    waits = [m.t for m in rate_limit(header("RateLimit")) or () if m.r == 0 and m.t is not None]
    return min(max(waits), LONGEST) if waits else None
