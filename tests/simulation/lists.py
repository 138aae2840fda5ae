"""What the answer to a list must be: a row for each line, in their order, with the upstream's word or a true reason."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

from doi_proxy.errors import CouldNotVerify, list_errors
from tests.simulation.history import ALIASES, NOT_A_NAME, NameList
from tests.simulation.judge import Judge
from tests.world.answer import Reply

EACH_LINE: Final = "each line of a list has its row"
_TRUE_REASON: Final = "a row names a reason that there was"
_FOUND: Final = frozenset({"resolved", "alias"})
_UNDECIDED: Final = frozenset({"unverified", "rate_limited"})


class ListJudge:
    """See the module. `judge` knows what the upstream said."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._tokens = {(error.__doc__ or "").splitlines()[0]: error.token for error in list_errors(CouldNotVerify)}

    def reply(self, sent: NameList, answer: asyncio.Future[Reply]) -> None:
        """A list has ended."""
        if answer.cancelled():
            return
        if answer.exception() is not None:
            self._judge.report(EACH_LINE, f"the list ended: {answer.exception()}")
            return
        reply = answer.result()
        rows = [json.loads(line) for line in reply.body.splitlines()] if reply.status == 200 else []
        self._judge.note_list(reply, rows)
        if [row.get("input") for row in rows] != list(sent.names):
            self._judge.report(EACH_LINE, f"{reply.status}, {len(rows)} rows of {len(sent.names)}: {rows[-1:]}")
            return
        began = self._judge.world.loop.time() - reply.seconds
        for row in rows:
            self._check_row(sent, row, began)

    def _check_row(self, sent: NameList, row: Any, began: float) -> None:
        name, verdict, instance = row["input"], row["verdict"], sent.client % self._judge.instances
        if name == NOT_A_NAME:
            is_right = verdict == "not_a_doi"
        elif verdict in _FOUND:
            is_right = True
            self._judge.check_row(name, instance, began, row["url"])
        elif verdict == "not_found":
            is_right = True
            self._judge.check_not_found(name, instance, began)
        else:
            is_right = verdict in _UNDECIDED
            self._check_reason(sent, row, began)
        if not is_right:
            self._judge.report("a verdict is the upstream's word", f"{name}: {verdict}, {row['message']}")

    def _check_reason(self, sent: NameList, row: Any, began: float) -> None:
        if row["input"] not in ALIASES:
            self._judge.check_known(row["input"], sent.client % self._judge.instances, row["verdict"], began)
        token = self._tokens.get(row["message"])
        if token is not None and (objection := self._judge.causes.find_objection(token, began, is_list=True)):
            self._judge.report(_TRUE_REASON, f"{row['input']}: {row['verdict']}, {objection[1]}")
