"""Deliveries, dead letters, activities: what operators ask (interface.md §5)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from starlette.routing import Route

from streams.api import listing
from streams.api.asking import Answer, Asking, Desk, reason_of
from streams.api.auth import ADMIN, READ, owned
from streams.api.cancelling import Canceller, Unwanted
from streams.api.facts import activity_facts, delivery_facts, letter_facts
from streams.api.listing import LIMIT_MAX, OFFSET_MAX, Asked
from streams.api.problems import Problem
from streams.api.redriving import Redriver, Wish
from streams.api.shapes import Status, activity_key
from streams.api.view import View
from streams.rules.decide import EffectMode

BASE: Final = "/api/v2/notifications"
DELIVERIES_SHOWN: Final = 2_000
"""Of one activity; more are found by `deliveries?activity_id=`, page by page."""


class LetterState(StrEnum):
    """Whether a dead letter still waits for somebody."""

    OPEN = "open"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRoutes:
    """The endpoints over the read model, the redrive and the cancel."""

    desk: Desk
    redriver: Redriver
    canceller: Canceller

    @property
    def _view(self) -> View:
        return self.desk.view

    def routes(self) -> list[Route]:
        """All of them."""
        endpoint = self.desk.endpoint
        filters = frozenset({"activity_id", "status", "target", "limit", "cursor"})
        paging = frozenset({"state", "limit", "offset", "cursor"})
        letter = f"{BASE}/dead-letters/{{dead_letter_id}}"
        delivery = f"{BASE}/deliveries/{{delivery_id}}"
        return [
            Route(f"{BASE}/deliveries", endpoint(self.deliveries, READ, filters)),
            Route(f"{delivery}:cancel", endpoint(self.cancel, ADMIN), methods=["POST"]),
            Route(delivery, endpoint(self.delivery, READ)),
            Route(f"{BASE}/activities/{{activity_id:path}}", endpoint(self.activity, READ)),
            Route(f"{BASE}/dead-letters", endpoint(self.letters, READ, paging)),
            Route(f"{letter}:redrive", endpoint(self.redrive, ADMIN), methods=["POST"]),
            Route(letter, endpoint(self.letter, READ)),
        ]

    async def deliveries(self, asking: Asking) -> Answer:
        """A page of deliveries, the newest first."""
        page = listing.deliveries(
            self._view,
            Asked(
                tenant=asking.tenant,
                activity_id=asking.text("activity_id"),
                status=asking.choice("status", Status),
                target=asking.text("target"),
                limit=asking.number("limit", 50, 1, LIMIT_MAX),
                cursor=asking.text("cursor"),
            ),
        )
        items = [delivery_facts(seen) for seen in page.rows]
        return Answer(body={"items": items, "next_cursor": page.next_cursor})

    async def delivery(self, asking: Asking) -> Answer:
        """One delivery."""
        found = self._view.db.delivery(asking.path("delivery_id"))
        return Answer(body=delivery_facts(owned(found, asking.tenant, "delivery")))

    async def cancel(self, asking: Asking) -> Answer:
        """Take a delivery back that is not settled, audited."""
        delivery_id = asking.path("delivery_id")
        # Before anything is told of the body: what is another's is answered as unknown.
        owned(self._view.db.delivery(delivery_id), asking.tenant, "delivery")
        done = await self.canceller.cancel(
            Unwanted(
                tenant=asking.tenant,
                delivery_id=delivery_id,
                reason=reason_of(await asking.body("reason")),
                subject=asking.caller.subject,
                request_id=asking.request_id,
            )
        )
        body: dict[str, Any] = {"audit_id": done.audit_id, "delivery": None}
        if done.delivery is None:
            place = {"location": f"{BASE}/deliveries/{delivery_id}", "retry-after": "2"}
            return Answer(status=202, body=body, headers=place)
        body["delivery"] = delivery_facts(done.delivery)
        return Answer(body=body, visible_at=done.visible_at)

    async def activity(self, asking: Asking) -> Answer:
        """One activity with all its deliveries (O-022)."""
        key = activity_key(asking.tenant, asking.path("activity_id"))
        activity, deliveries = self._view.activity(key)
        found = owned(activity, asking.tenant, "activity")
        return Answer(body=activity_facts(found, deliveries, DELIVERIES_SHOWN))

    async def letters(self, asking: Asking) -> Answer:
        """A page of dead letters, the newest first (D-057)."""
        limit = asking.number("limit", 50, 1, LIMIT_MAX)
        offset = asking.number("offset", 0, 0, OFFSET_MAX)
        state = asking.choice("state", LetterState)
        page = listing.letters(
            self._view,
            asking.tenant,
            is_open=None if state is None else state is LetterState.OPEN,
            limit=limit,
            offset=offset,
            cursor=asking.text("cursor"),
        )
        items = [letter_facts(each, is_open=self._view.is_open(each)) for each in page.rows]
        body = {"items": items, "limit": limit, "offset": offset, "next_cursor": page.next_cursor}
        return Answer(body=body)

    async def letter(self, asking: Asking) -> Answer:
        """One dead letter, open or resolved: where a redrive is asked after."""
        found = owned(
            self._view.letter(asking.path("dead_letter_id")), asking.tenant, "dead letter"
        )
        return Answer(body=letter_facts(found, is_open=self._view.is_open(found)))

    async def redrive(self, asking: Asking) -> Answer:
        """Reopen a dead letter, audited (D-060..069)."""
        letter_id = asking.path("dead_letter_id")
        # Before anything is told of the body: what is another's is answered as unknown.
        owned(self._view.letter(letter_id), asking.tenant, "dead letter")
        fields = await asking.body("reason", "effect_mode")
        done = await self.redriver.redrive(
            Wish(
                tenant=asking.tenant,
                letter_id=letter_id,
                mode=mode_of(fields["effect_mode"]),
                reason=reason_of(fields),
                subject=asking.caller.subject,
                request_id=asking.request_id,
            )
        )
        place = f"{BASE}/dead-letters/{letter_id}"
        body: dict[str, Any] = {
            "audit_id": done.audit_id,
            "dead_letter_id": letter_id,
            "delivery": None,
        }
        if done.delivery is None:
            return Answer(status=202, body=body, headers={"location": place, "retry-after": "2"})
        body["delivery"] = delivery_facts(done.delivery)
        return Answer(body=body, visible_at=done.visible_at)


def mode_of(text: str) -> EffectMode:
    """What a redrive is to do.

    Raises:
        Problem: 422.
    """
    try:
        return EffectMode(text)
    except ValueError:
        raise Problem(
            422, "effect_mode_invalid", f"effect_mode must be one of {', '.join(EffectMode)}."
        ) from None
