"""Lines of a stream, in blocks that are worth a parser's call, with their numbers."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from privatekube_kfp.data.tables import sizes
from privatekube_kfp.data.tables.files import NOT_TEXT_BYTES

_BLANK = b" \t\r"


class Lines:
    """The lines of a block that are not blank, with their numbers in the file."""

    def __init__(self, text: bytes, numbers: Sequence[int]) -> None:
        self.text = text
        self.numbers = numbers
        self.are_objects = _are_objects(text)

    @staticmethod
    def of(block: bytes, first: int) -> Lines:
        lines = Lines(block, range(first, first + count_lines(block)))
        return lines if lines.are_objects else lines.without(0)

    def listed(self) -> list[tuple[int, bytes]]:
        numbered = zip(self.numbers, self.text.split(b"\n"), strict=False)
        return [(number, line) for number, line in numbered if line.strip(_BLANK)]

    def without(self, count: int) -> Lines:
        """The same but for the first so many, and for blanks."""
        listed = self.listed()[count:]
        text = b"\n".join(line.strip(_BLANK) for _, line in listed)
        return Lines(text, [number for number, _ in listed])


def count_lines(block: bytes) -> int:
    return block.count(b"\n") + (not block.endswith(b"\n"))


def _are_objects(block: bytes) -> bool:
    """Whether every line begins and ends as an object does, and none has a mark.

    Then no object goes on on another line: between `}` and `{` it would need a comma.
    """
    if not block or NOT_TEXT_BYTES in block:
        return False
    text = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(text == ord("\n"))
    if not block.endswith(b"\n"):
        ends = np.append(ends, len(text))
    starts = np.append(0, ends[:-1] + 1)
    if not (text[starts] == ord("{")).all():
        return False
    last = text[ends - 1]
    last = np.where(last == ord("\r"), text[ends - 2], last)
    return bool((last == ord("}")).all())


def blocks(stream: io.BufferedReader) -> Iterator[bytes | None]:
    """Whole lines, so many that they are worth the call; None for a line that is too long."""
    begun: list[bytes] = []
    length = 0
    while chunk := stream.read(sizes.BLOCK):
        end = chunk.find(b"\n") + 1
        if not end:
            length += len(chunk)
            begun = [*begun, chunk] if length <= sizes.LONGEST_LINE else []
            continue
        if length > sizes.LONGEST_LINE:
            yield None
        elif length >= sizes.BLOCK:
            yield b"".join([*begun, chunk[:end]])
        else:
            end = chunk.rfind(b"\n") + 1
            yield from _few_lines(b"".join([*begun, chunk[:end]]))
        last = chunk.rfind(b"\n") + 1
        if last > end:
            yield from _few_lines(chunk[end:last])
        begun, length = [chunk[last:]], len(chunk) - last
    if length > sizes.LONGEST_LINE:
        yield None
    elif length:
        yield b"".join(begun)


def _few_lines(block: bytes) -> Iterator[bytes]:
    """In parts of at most so many lines."""
    if count_lines(block) <= sizes.MOST_ROWS:
        yield block
        return
    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n")) + 1
    cuts = [0, *(int(end) for end in ends[sizes.MOST_ROWS - 1 :: sizes.MOST_ROWS])]
    if cuts[-1] < len(block):
        cuts.append(len(block))
    for start, end in pairwise(cuts):
        yield block[start:end]
