"""What the files of the contract test share: an agent in a host, and the words that tests of it are written in."""

import json
import logging

import pytest
import pytest_asyncio
from host_client import hosting
from vrt_host.config import TurnLimits

from peers.device import Device
from peers.plan import tone
from peers.subjects import KEY, SUBJECTS

LOCK = {"door": "front", "state": "locked"}
CALL = {"call": "lock", "arguments": json.dumps(LOCK)}
SHORT = {"say": "It is done.", "seconds": 0.06}
LIMITS = TurnLimits(call_margin=0.0, agent_audio_s=10.0)
"""An agent that does not wait for the device is found out soon."""
MARK = "mark-7391"
"""Stands in what the device says, to be found again at the provider's."""


class Case:
    """An agent in a host."""

    def __init__(self, subject, host):
        self.subject = subject
        self.peer = subject.peer
        self._host = host

    async def plan(self, *responses):
        await self.subject.plan(*responses)

    def session(self, **options):
        """A device's session (`Device.opened`)."""
        return Device.opened(self._host, **options)

    async def talks(self, device):
        """The agent speaks, and goes on for a while."""
        if self.subject.planned or self.subject.tools:
            await device.types("What can you do?")
        else:
            await device.hears(tone(4, "pcmu", 8000))
        await device.sounds()

    async def at_provider(self, text):
        """The provider, where there is one, is told something with this text in it."""
        if self.peer is not None:
            await self.peer.mentioned(text)


def subjects(*, slow=False, **wanted):
    """The agents with these properties."""
    return [
        name
        for name, kind in SUBJECTS.items()
        if all(getattr(kind, key) == value for key, value in wanted.items()) and (slow or not kind.slow)
    ]


@pytest_asyncio.fixture(name="subject", scope="module", loop_scope="module")
async def subject_of_module(request, tmp_path_factory):
    async with (
        SUBJECTS[request.param](tmp_path_factory.mktemp(request.param)) as subject,
        hosting(lambda: subject.agents(), turn_limits=LIMITS) as host,  # noqa: PLW0108
    ):
        yield Case(subject, host)


@pytest_asyncio.fixture(name="case", loop_scope="module")
async def case_of_agent(subject, caplog):
    with caplog.at_level(logging.INFO):
        yield subject
    await subject.subject.reset()
    records = [record for phase in ("setup", "call", "teardown") for record in caplog.get_records(phase)]
    assert not [record for record in records if KEY in record.getMessage() + str(record.exc_text)]


def over(**wanted):
    """Run a test over all agents with these properties; `slow`: over those that take their time, too."""
    return pytest.mark.parametrize("subject", subjects(**wanted), indirect=True)


async def ends_well(case, device):
    """The agent answers the next text, no error has come, and nothing of what was interrupted."""
    said = len(device.heard) + len(device.all("text"))
    rested = len(device.all("turn.state", state="idle"))
    await device.types()
    await device.until(lambda: len(device.heard) + len(device.all("text")) > said)
    if case.subject.planned:
        await device.until(lambda: len(device.all("turn.state", state="idle")) > rested)
    else:
        await device.interrupts()
    assert device.all("error") == [], device.log
    assert device.late == [], device.log
    assert device.close_code is None


async def answered(case, device):
    """What is said has been said; without a plan that takes too long to be heard to its end each time."""
    if case.subject.planned:
        await device.rests()
    else:
        await device.until(lambda: device.heard or device.all("text"))
        await device.interrupts()
