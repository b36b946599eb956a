"""What a client has been given, whichever replicas it came from: one text, nothing twice and nothing left out."""

from array import array


class Diverged(RuntimeError):
    """A replica gives another text than the one before it has given."""


class Delivery:
    """The tokens of one request over all attempts at it.

    Every attempt begins at the beginning, as the request and its seed determine the text:

        |------- delivered -------|
        |--- first attempt ---|x            a replica that crashes
        |--- the next: dropped ---|--- passed on --->
    """

    def __init__(self) -> None:
        self._delivered = array("q")

    @property
    def num_delivered(self) -> int:
        """Tokens that the client has."""
        return len(self._delivered)

    def take(self, index: int, token: int) -> bool:
        """Take in token `index` of an attempt; True where it is new and to be passed on.

        Raises Diverged for a token that is not the one delivered at its place, or that leaves a gap.
        """
        num = len(self._delivered)
        if index < num:
            if self._delivered[index] != token:
                raise Diverged(f"token {index} is {token}, and {self._delivered[index]} was delivered before")
            return False
        if index > num:
            raise Diverged(f"token {index} comes after {num} tokens")
        self._delivered.append(token)
        return True
