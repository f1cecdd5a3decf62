"""The agents under the contract test, each with what makes it answer as a test plans."""

import contextlib
import importlib
import json
import wave
from pathlib import Path

from vrt_host.agents import registry
from vrt_host.agents.options import load

from peers.plan import checked, encoded, samples, tone
from peers.process import PeerProcess

VOICES = Path(__file__).parents[1] / "speech" / "voices"
KEY = "a-secret-that-nobody-may-see"


class Subject:
    """An agent. What a subclass leaves as it is here, the agent cannot do."""

    name = ""
    interruption = "cancel"
    tools = False
    """It calls the device's tools."""
    planned = False
    """It says what is planned; else a test's sentence has to bring it about."""
    provider = False
    """Its model is somebody else's."""
    peer = None
    """The provider's process, if it has one."""
    queues = True
    """Its second call reaches the board while the first runs."""
    free = True
    """Its model writes the arguments of a call as text, which may be anything."""
    slow = False
    """Only tests that ask for it run over it."""

    def __init__(self, folder):
        self._folder = folder

    async def __aenter__(self):
        return self

    async def __aexit__(self, *error):
        pass

    async def reset(self):
        """Between two tests."""

    async def plan(self, *responses):
        """What is answered, one response each time the model has to respond. To be called before the session begins."""

    def agents(self):
        """Make one agent: what the host calls for each session."""
        raise NotImplementedError

    def voice(self):
        """Speech, as mu-law, that it understands as "turn on the light"."""
        return tone(0.3, "pcmu", 8000)


class Echo(Subject):
    name = "echo"

    def __init__(self, folder):
        super().__init__(folder)
        self.agents = registry.factory("echo")


class Local(Subject):
    name = "local"
    tools = True

    async def __aenter__(self):
        self.agents = registry.factory("local")
        registry.prepare(self.agents)
        return self

    def voice(self):
        path = Path(registry.__file__).parents[1] / "harness" / "voices" / "turn-on-the-light.wav"
        with wave.open(str(path)) as file:  # 16 kHz
            values = samples(file.readframes(file.getnframes()), "pcm16")
        return encoded(values.reshape(-1, 2).mean(axis=1), "pcmu")


class Scripted(Subject):
    name = "scripted"
    interruption = "truncate"
    tools = True
    planned = True

    async def reset(self):
        await self.plan()

    async def plan(self, *responses):
        rules, left = [], [list(map(checked, response)) for response in responses]
        while left:
            calls, actions = 0, []
            while left and (not actions or calls):  # a model that has the results of its calls responds again
                actions += [{"waitResult": f"call-{number}"} for number in range(calls)]
                response = left.pop(0)
                calls = 0
                for part in response:
                    actions.append(_action(part, f"call-{calls}"))
                    calls += "call" in part
            for on in ({"text": {"matches": ""}}, {"audio": {"voicedMs": 200, "silenceMs": 300}}):
                rules.append(
                    {
                        "on": on,
                        "times": 1,
                        "do": actions,
                        "turn": "listening" if "audio" in on else "thinking",
                    }
                )
        rules.append({"on": {"result": {"code": "TIMEOUT"}}, "do": [{"say": "There was no answer."}]})
        path = self._folder / "script.json"
        path.write_text(
            json.dumps({"rules": rules, "otherwise": [{"say": {"text": "All right.", "toneMs": 100}}]})
        )
        self.agents = registry.factory("scripted", script=path)


def _action(part, call):
    """What a script does for a part."""
    if "say" in part:
        seconds = 600 if part["seconds"] is None else part["seconds"]
        return {"say": {"text": part["say"], "toneMs": round(1000 * seconds)}}
    if "text" in part:
        return {"text": part["text"]}
    if "call" in part:
        return {"call": {"tool": part["call"], "raw": part["arguments"], "id": call}}
    return {"waitMs": 3_600_000}  # nothing can release it


class Adapter(Subject):
    """An agent with a provider, whose peer is a process of its own."""

    tools = True
    planned = True
    provider = True
    process = ""
    """The peer's module."""
    settings = {}  # noqa: RUF012

    def options(self):
        """The agent's table in the options file."""
        raise NotImplementedError

    async def __aenter__(self):
        async with contextlib.AsyncExitStack() as stack:
            self.peer = await stack.enter_async_context(PeerProcess(self.process, **self.settings))
            self.config = self._folder / f"{self.name}.toml"
            (self._folder / "key").write_text(KEY)
            lines = [f"{name} = {json.dumps(value)}" for name, value in self.options().items()]
            self.config.write_text("\n".join([f"[{self.name}]", 'api_key_file = "key"', *lines]))
            self.agents = self.made()
            registry.prepare(self.agents)
            self._stack = stack.pop_all()
        return self

    def made(self):
        """What makes agents."""
        return registry.factory(self.name, config=self.config)

    async def __aexit__(self, *error):
        await self._stack.__aexit__(*error)

    async def reset(self):
        await self.peer.reset()

    async def plan(self, *responses):
        await self.peer.respond(*responses)


class OpenAI(Adapter):
    name = "openai"
    process = "openai_realtime"
    interruption = "truncate"

    def options(self):
        return {"base_url": f"http://127.0.0.1:{self.peer.port}/v1"}


class OpenAILive(OpenAI):
    name = "openai_live"
    process = "openai_live"
    interruption = "managed"

    def options(self):
        return {**super().options(), "pause_ms": 160}


class Gemini(Adapter):
    name = "gemini"
    process = "gemini_live"
    interruption = "managed"
    free = False

    def options(self):
        return {"base_url": f"http://127.0.0.1:{self.peer.port}"}


class Aitp(Adapter):
    name = "aitp"
    process = "aitp"
    free = False

    def options(self):
        return {"url": f"ws://127.0.0.1:{self.peer.port}", "reconnect_delay_ms": 20}


class Omnia(Adapter):
    name = "omnia"
    process = "omnia"
    interruption = "managed"
    free = False

    def options(self):
        return {"base_url": f"http://127.0.0.1:{self.peer.port}", "agent": "my-agent"}


class Fish(Adapter):
    """In a room of LiveKit's, where speech takes its time."""

    name = "fish"
    process = "fish"
    free = False
    slow = True

    def options(self):
        return {"base_url": f"http://127.0.0.1:{self.peer.port}", "agent_id": "an-agent"}


class FishLine(Fish):
    """With a line in place of the room."""

    settings = {"rooms": "line"}  # noqa: RUF012
    slow = False

    def made(self):
        module = importlib.import_module("peers.fish_user")
        options = load(module.Options, self.name, self.config)
        return lambda: module.LineAgent(options)


class Chat(Adapter):
    name = "chat"
    process = "chat"

    def options(self):
        url = f"http://127.0.0.1:{self.peer.port}/v1"
        speech = {
            f"{part}{what}": value
            for part in ("recogniser", "synthesiser")
            for what, value in (("", "openai"), ("_url", url), ("_key_file", "key"), ("_model", "m"))
        }
        return {"base_url": url, "model": "m", "vad": "loudness", **speech}


SUBJECTS = {
    kind.name: kind for kind in (Echo, Scripted, Local, OpenAI, OpenAILive, Gemini, Aitp, Omnia, Fish, Chat)
}
SUBJECTS["fish_line"] = FishLine
