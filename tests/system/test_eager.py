"""Work that begins at once and goes on as a task: what it waits for, its errors, and its end."""

from __future__ import annotations

import ast
import asyncio
from pathlib import Path
from typing import Final

import pytest

from doi_proxy.system.eager import Rest, begin, in_task

pytestmark = pytest.mark.anyio

ROOT: Final = Path(__file__).parents[2]


class Work:
    """Work that waits once, for a future or for a turn."""

    def __init__(self, fault_before: bool = False, fault_after: bool = False) -> None:
        self.future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.faults = fault_before, fault_after
        self.ended = False

    async def run(self, *, only_turn: bool = False) -> str:
        try:
            if self.faults[0]:
                raise ValueError("before")
            result = "a turn"
            if only_turn:
                await asyncio.sleep(0)
            else:
                result = await self.future
            if self.faults[1]:
                raise ValueError("after")
            return result
        finally:
            self.ended = True


def begin_waiting(work: Work, *, only_turn: bool = False) -> Rest:
    rest = begin(work.run(only_turn=only_turn))
    assert isinstance(rest, Rest) and not work.ended
    return rest


async def test_work_that_waits_for_nothing_has_ended() -> None:
    async def work() -> str:
        return "done"

    assert begin(work()) == "done"


@pytest.mark.parametrize("only_turn", [False, True])
async def test_work_that_waits_goes_on_in_a_task(only_turn: bool) -> None:
    work = Work()
    task = asyncio.ensure_future(begin_waiting(work, only_turn=only_turn).finish())
    work.future.set_result("an answer")
    assert await task == ("a turn" if only_turn else "an answer")


async def test_what_it_waits_for_may_end_before_the_task_begins() -> None:
    work = Work()
    rest = begin_waiting(work)
    work.future.set_result("an answer")
    await asyncio.sleep(0)
    assert await rest.finish() == "an answer"


async def test_several_may_wait_for_one_future() -> None:
    shared: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def work() -> int:
        return await shared

    rests = [begin(work()), begin(work())]
    tasks = [asyncio.create_task(rest.finish()) for rest in rests if isinstance(rest, Rest)]
    shared.set_result(1)
    assert await asyncio.gather(*tasks) == [1, 1]


async def test_an_error_is_raised_where_the_work_is() -> None:
    with pytest.raises(ValueError, match="before"):
        begin(Work(fault_before=True).run())
    with pytest.raises(ValueError, match="after"):
        await begin_waiting(Work(fault_after=True), only_turn=True).finish()
    failed = Work()
    rest = begin_waiting(failed)
    failed.future.set_exception(KeyError("upstream"))
    with pytest.raises(KeyError, match="upstream"):
        await rest.finish()


@pytest.mark.parametrize("turns", [0, 1, 2])
async def test_work_that_is_cancelled_ends(turns: int) -> None:
    """A task that is cancelled before its first turn runs nothing: the work ends when nobody holds it any more."""
    work = Work()
    task = asyncio.ensure_future(begin_waiting(work).finish())
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    del task
    await asyncio.sleep(0)
    assert work.ended


async def test_work_may_survive_its_cancellation() -> None:
    async def stubborn() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
        return "still here"

    rest = begin(stubborn())
    assert isinstance(rest, Rest)
    task = asyncio.ensure_future(rest.finish())
    await asyncio.sleep(0)
    task.cancel()
    assert await task == "still here"


async def test_a_timeout_is_that_of_the_work_and_not_of_who_began_it() -> None:
    async def work() -> str:
        await in_task()
        async with asyncio.timeout(None) as timeout:
            timeout.reschedule(asyncio.get_running_loop().time())
            await asyncio.Event().wait()
        return "never"

    found: asyncio.Future[Rest] = asyncio.get_running_loop().create_future()

    def receive() -> None:  # a callback of the event loop, as that of a connection: no task runs
        rest = begin(work())
        assert isinstance(rest, Rest)
        found.set_result(rest)

    asyncio.get_running_loop().call_soon(receive)
    with pytest.raises(TimeoutError):
        await asyncio.ensure_future((await found).finish())


async def test_in_a_task_it_goes_on_at_once() -> None:
    assert begin(in_task()) is None


#: Modules whose coroutines are never begun without a task: queries, lists, commands, what runs beside requests.
TASKS: Final = (
    "handle_protocol/",
    "doi_proxy/upstream/",
    "doi_proxy/assembly/",
    "doi_proxy/commands/",
    "doi_proxy/server/http_server.py",
    "doi_proxy/list_formats/",
    "doi_proxy/store/kept_file.py",
    "doi_proxy/system/",
    "doi_proxy/features/admin/",
    "doi_proxy/features/assistants/",
    "doi_proxy/features/bundles/",
    "doi_proxy/features/lists/",
    "doi_proxy/features/metadata/",
    "doi_proxy/features/native/",
    "doi_proxy/features/registry/",
    "doi_proxy/features/setup/",
)
NEEDS_TASK: Final = frozenset({"timeout", "timeout_at", "TaskGroup", "wait_for"})


def find_uses(text: str) -> list[str]:
    """The functions that need a task before they await `in_task`."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.AsyncFunctionDef):
            uses = [
                each.lineno
                for each in ast.walk(node)
                if isinstance(each, ast.Call) and ast.unparse(each.func).removeprefix("asyncio.") in NEEDS_TASK
            ]
            entered = [
                each.lineno
                for each in ast.walk(node)
                if isinstance(each, ast.Await) and ast.unparse(each.value) == "in_task()"
            ]
            if uses and (not entered or min(entered) > min(uses)):
                found.append(node.name)
    return found


def test_what_needs_a_task_enters_one_first() -> None:
    app = ROOT / "app"
    found = {
        name: uses
        for path in app.rglob("*.py")
        if not (name := path.relative_to(app).as_posix()).startswith(TASKS)
        and (uses := find_uses(path.read_text("utf-8")))
    }
    assert found == {}


def test_the_rule_sees_a_function_without_a_task() -> None:
    body = "    async with asyncio.timeout(1.0):\n        await work()\n"
    assert find_uses(f"async def wait():\n{body}") == ["wait"]
    assert find_uses(f"async def wait():\n    await in_task()\n{body}") == []
