"""Pictures inside the page: its own bytes, so that nothing is loaded from anywhere."""

from __future__ import annotations

import base64
import struct
from dataclasses import dataclass

PNG = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A PNG as the page has it."""

    data: str
    """In base 64."""
    width: int
    height: int
    alt: str


def picture_of(data: bytes | None, alt: str, *, most_bytes: int) -> Picture | None:
    """A picture, if it is a PNG that a page can hold."""
    if data is None or len(data) > most_bytes or data[:8] != PNG:
        return None
    width, height = struct.unpack(">II", data[16:24])
    return Picture(data=base64.b64encode(data).decode("ascii"), width=width, height=height, alt=alt)
