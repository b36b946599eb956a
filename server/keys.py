"""API keys: who is served, and whose prefixes are shared with whom."""

import hashlib
import hmac
from collections.abc import Sequence

from starlette.requests import Request

from server.errors import ApiError


class Keys:
    """The keys that are served; with none, everyone is."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = [key.encode() for key in keys]

    def salt(self, request: Request) -> str | None:
        """Check a request's key and give the salt its prefixes are cached under; the key does not show in it.

        Raises ApiError (401). How long a wrong key takes does not tell how wrong it is.
        """
        if not self._keys:
            return None
        scheme, _, sent = request.headers.get("authorization", "").partition(" ")
        matches = [hmac.compare_digest(sent.strip().encode(), key) for key in self._keys]
        if scheme.lower() != "bearer" or not any(matches):
            message = "the API key is missing or wrong: Authorization: Bearer KEY"
            raise ApiError(401, message, code="invalid_api_key", headers={"www-authenticate": "Bearer"})
        return hashlib.sha256(self._keys[matches.index(True)]).hexdigest()[:32]
