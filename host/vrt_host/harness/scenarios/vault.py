# A tool whose confirmation expires soon, for the scenario confirmation-expires.
from vrt.tools import tool


@tool("Open or close the vault.", {"state": {"enum": ["open", "closed"]}}, effect="irreversible", confirm="button", timeout_ms=3000)  # fmt: skip
def vault(state):
    return {"state": state}
