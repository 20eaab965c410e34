"""Answers that come in time, whatever it is that answers.

A time limit on a socket holds for each piece of an answer: a server that sends a byte a second
never exceeds it. So whatever asks a server that others run does so in here.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def within(seconds: float, work: Callable[[], T]) -> T:
    """What `work` returns or raises; `TimeoutError` if that takes longer.

    Then it is left behind, in a thread that does not keep the process from ending.
    """
    done: queue.SimpleQueue[Callable[[], T]] = queue.SimpleQueue()

    def run() -> None:
        try:
            result = work()
        except BaseException as error:
            failure = error

            def fail() -> T:
                raise failure

            done.put(fail)
        else:
            done.put(lambda: result)

    threading.Thread(target=run, daemon=True).start()
    try:
        answer = done.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"no answer within {seconds:g} s") from None
    return answer()
