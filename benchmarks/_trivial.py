"""The least that an app can answer: what the server and the client cost by themselves."""

from __future__ import annotations

from fastapi import FastAPI, Response

app = FastAPI()


@app.post("/")
async def answer() -> Response:
    """Reads nothing."""
    return Response(b"{}", media_type="application/json")
