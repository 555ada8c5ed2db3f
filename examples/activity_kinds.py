"""The kinds of line that `make_activities` puts together, each a list of records."""

from __future__ import annotations

import base64
import json
import random
from typing import Any, Final

PLACEHOLDER: Final = "http://receiver.invalid"
LARGE_BYTES: Final = 200 * 1024

Line = dict[str, Any]

_PEOPLE: Final = (
    ("al", "Al Ferris"),
    ("bea", "Béatrice Lœuvre"),
    ("chidi", "Chidi Okonkwo"),
    ("dana", "דנה כהן"),
    ("eun", "김은서"),
    ("fatima", "فاطمة الزهراء"),
    ("goran", "Горан Петровић"),
    ("hana", "花子 佐藤"),
)
_HOSTS: Final = ("a.example", "casework.example", "hafen.example", "north.example")
_PLAIN_TEXTS: Final = (
    "Minutes of this morning's call are in the folder; please check the dates before Friday.",
    "The lift on the second floor works again.",
    "Case 2026/118 was reopened after the supplier sent the missing delivery note.",
    "New opening hours from Monday: 8 to 18, Thursdays until 20.",
    "Thanks to everybody who helped on Saturday. We counted 412 visitors.",
    "Draft 3 is ready for review. Comments by Wednesday, please.",
)
_OTHER_TEXTS: Final = (
    "Straße gesperrt: Umleitung über die Mühlgasse – „bitte langsam fahren“.",
    "会議は午後三時からに変わりました。資料は共有フォルダにあります。",
    "Заседание переносится на вторник; протокол будет разослан вечером.",
    "تم تحديث جدول المناوبات، يرجى التأكيد قبل يوم الخميس.",
    "Já está disponível a ata da reunião de ontem 👩🏽‍💻 — obrigado a todos!",
    'Quotes "inside", a backslash \\ and a line end\nmust arrive as they were written.',
)
_HARD: Final = (
    ("/flaky/2", 20),
    ("/retry-after/3", 6),
    ("/status/400", 4),
    ("/redirect", 4),
    ("/status/503", 5),
    ("/reset", 5),
    ("/hang", 2),
)


def _inbox(behaviour: str, owner: str) -> Line:
    return {"inbox": f"{PLACEHOLDER}{behaviour}/{owner}/inbox"}


def _answering(chance: random.Random) -> Line:
    """An inbox that answers; 40 of them, so that some are told often."""
    return _inbox("/ok", f"users/{chance.choice(_PEOPLE)[0]}{chance.randrange(5)}")


def _create(number: str, chance: random.Random, text: str, recipients: list[Line]) -> Line:
    host = chance.choice(_HOSTS)
    user, name = chance.choice(_PEOPLE)
    actor = f"https://{host}/users/{user}"
    activity_id = f"https://{host}/activities/{number}"
    minute = chance.randrange(1440)
    return {
        "activity_id": activity_id,
        "actor": actor,
        "recipients": recipients,
        "activity": {
            "@context": "https://www.w3.org/ns/activitystreams",
            "id": activity_id,
            "type": "Create",
            "actor": actor,
            "published": f"2026-03-02T{minute // 60:02}:{minute % 60:02}:00Z",
            "to": ["https://www.w3.org/ns/activitystreams#Public"],
            "object": {
                "id": f"https://{host}/notes/{number}",
                "type": "Note",
                "attributedTo": actor,
                "name": name,
                "content": text,
            },
        },
    }


def notes(chance: random.Random) -> list[Line]:
    """285 notes, each to one inbox that answers."""
    lines = []
    for n in range(285):
        text = chance.choice(_OTHER_TEXTS if n % 5 == 0 else _PLAIN_TEXTS)
        lines.append(_create(f"note-{n}", chance, text, [_answering(chance)]))
    return lines


def announces(chance: random.Random) -> list[Line]:
    """60 announces with 220 inboxes; 12 reach one that is flaky, 8 one that never works."""
    lines = []
    trouble = ["/flaky/2"] * 12 + ["/retry-after/3"] * 2 + ["/status/400"] * 4 + ["/status/503"] * 4
    for n in range(60):
        inboxes = [_inbox("/ok", f"followers/{n}-{m}") for m in range((2, 3, 4, 6, 3, 4)[n % 6])]
        if n < len(trouble):
            inboxes[-1] = _inbox(trouble[n], f"followers/{n}")
        line = _create(f"announce-{n}", chance, "", inboxes)
        shared = f"https://{chance.choice(_HOSTS)}/notes/note-{chance.randrange(285)}"
        line["activity"] |= {"type": "Announce", "object": shared}
        lines.append(line)
    return lines


def ledger_entries(chance: random.Random) -> list[Line]:
    """36 ledger entries; O-023: their dead letters carry the entry's id."""
    lines = []
    paths = ["/ok"] * 30 + ["/status/400"] * 4 + ["/redirect"] * 2
    for n, path in enumerate(paths):
        line = _create(f"ledger-{n}", chance, "", [_inbox(path, f"auditors/{n}")])
        line["activity"]["object"] = {
            "type": "CaseLedgerEntry",
            "id": f"https://casework.example/ledger/{900 + n}",
            "case": f"2026/{100 + n}",
            "entry": chance.choice(("opened", "assigned", "heard", "decided", "closed")),
            "amount": {"currency": "EUR", "value": round(chance.uniform(5, 5_000), 2)},
        }
        lines.append(line)
    return lines


def notifications(chance: random.Random) -> list[Line]:
    """To targets by name; `acme` has a pager of its own, which resets every call."""
    plan = [("crm", "default")] * 60 + [("pager", "default")] * 24 + [("pager", "acme")] * 6
    lines = []
    for n, (target, tenant) in enumerate(plan):
        line: Line = {
            "activity_id": f"urn:notification:{tenant}:{target}:{n}",
            "actor": "https://a.example/services/alerts",
            "recipients": [{"target": target}],
            "channel": "alerts" if target == "pager" else "contacts",
            "activity": {
                "type": "Update" if target == "crm" else "Flag",
                "summary": chance.choice(_PLAIN_TEXTS),
                "severity": chance.choice(("low", "high")),
            },
        }
        if tenant != "default":
            line["tenant"] = tenant
        lines.append(line)
    return lines


def raw_bodies() -> list[Line]:
    """Eight bodies that are sent as they are, with their content type."""
    bodies = [
        (b"plain text, sent as it is\n", "text/plain"),
        ("Grüße aus Köln\n".encode("latin-1"), "text/plain; charset=iso-8859-1"),
        (bytes(range(256)), "application/octet-stream"),
        (b"a=1&b=two%20words", "application/x-www-form-urlencoded"),
        (b'{"spaces" :  "and order",\t"are": "kept" }', "application/json"),
        (b"<alert level='2'/>", "application/xml"),
        (b"{not json at all", "application/json"),
        (b"id;state\r\n7;open\r\n", "text/csv"),
    ]
    return [
        {
            "activity_id": f"urn:export:{n}",
            "recipients": [_inbox("/ok", f"exports/{n}")],
            "body": base64.b64encode(body).decode(),
            "content_type": content_type,
        }
        for n, (body, content_type) in enumerate(bodies)
    ]


def large(chance: random.Random) -> Line:
    """One line whose record has `LARGE_BYTES`, under the limit of 256 KiB."""
    line = _create("large", chance, "", [_inbox("/ok", "archive")])
    size = len(json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode())
    text = " ".join(chance.choice(_OTHER_TEXTS[:3]) for _ in range(4_000))
    room = LARGE_BYTES - size
    content = text.encode()[:room].decode(errors="ignore")
    line["activity"]["object"]["content"] = content + "." * (room - len(content.encode()))
    return line


def hard(chance: random.Random) -> list[Line]:
    """Each to an inbox of its own, so that none is left alone because of another's failures."""
    return [
        _create(
            f"hard-{path.strip('/').replace('/', '-')}-{n}",
            chance,
            chance.choice(_PLAIN_TEXTS),
            [_inbox(path, f"hard/{n}")],
        )
        for path, count in _HARD
        for n in range(count)
    ]


def malformed() -> list[Line]:
    """Each breaks another rule of interface.md §3."""
    good: Line = {"activity_id": "urn:bad", "recipients": [_inbox("/ok", "never")], "activity": {}}
    return [
        good | {"activity_id": ""},
        {k: v for k, v in good.items() if k != "activity_id"},
        good | {"activity_id": "urn:bad:2", "recipients": []},
        {"activity_id": "urn:bad:3", "activity": {"type": "Create"}},
        {"activity_id": "urn:bad:4", "recipients": good["recipients"]},
        good | {"activity_id": "urn:bad:5", "activity": ["not", "an", "object"]},
        {
            "activity_id": "urn:bad:6",
            "recipients": good["recipients"],
            "body": "not base64 !",
            "content_type": "text/plain",
        },
        {"activity_id": "urn:bad:7", "recipients": good["recipients"], "body": "aGFsbG8="},
    ]
