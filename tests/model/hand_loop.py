"""An asyncio loop without I/O or threads, whose clock is moved by hand: the same calls give the same run."""

import asyncio
import heapq
from collections import deque
from contextlib import contextmanager
from itertools import count

BUSY = 100_000  # callbacks without a pause: somebody keeps the loop for himself


class HandLoop(asyncio.AbstractEventLoop):
    def __init__(self, now):
        self.now = now
        self.faults = []
        self._ready = deque()
        self._timers = []
        self._order = count()

    def run(self):
        """Everything that is due now, and what follows from it at once."""
        with self.running():
            for _ in range(BUSY):
                while self._timers and self._timers[0][0] <= self.now:
                    self._ready.append(heapq.heappop(self._timers)[2])
                if not self._ready:
                    return
                handle = self._ready.popleft()
                if not handle.cancelled():
                    handle._run()
        raise AssertionError("the loop never comes to rest")

    @contextmanager
    def running(self):
        """For calls from outside."""
        asyncio._set_running_loop(self)
        try:
            yield
        finally:
            asyncio._set_running_loop(None)

    # --- what asyncio and the host ask of a loop

    def time(self):
        return self.now

    def get_debug(self):
        return False

    def call_soon(self, callback, *args, context=None):
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(self, delay, callback, *args, context=None):
        return self.call_at(self.now + delay, callback, *args, context=context)

    def call_at(self, when, callback, *args, context=None):
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._order), handle))
        return handle

    def create_future(self):
        return asyncio.Future(loop=self)

    def create_task(self, coro, *, name=None, context=None):
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def run_in_executor(self, executor, func, *args):
        future = self.create_future()
        future.set_result(func(*args))
        return future

    def call_exception_handler(self, context):
        self.faults.append(context)

    def _timer_handle_cancelled(self, handle):
        pass
