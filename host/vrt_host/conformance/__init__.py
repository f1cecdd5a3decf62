"""The conformance suite of vRT 1.3: scenarios that test any server or any client, and what they found.

`checks` holds what is checked and what came of it, `run` plays scenarios, `report` shows it. `client` and
`server_cases` test servers; `server` and `client_cases` test clients; `watch` looks at every frame meanwhile.
"""
