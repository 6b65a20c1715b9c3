"""SipHash-2-4: the keyed 64-bit hash of `tf.strings.to_hash_bucket_strong`, after Aumasson and Bernstein (2012)."""

from __future__ import annotations

from typing import Final

_M: Final = (1 << 64) - 1


def siphash(text: str | bytes, key: tuple[int, int]) -> int:
    """The hash of a string's UTF-8 bytes under a key of two 64-bit numbers, 0 … 2^64 − 1."""
    s = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    k0, k1 = key[0] & _M, key[1] & _M
    state = (k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573)
    whole = len(s) & ~7
    for at in range(0, whole, 8):
        state = _take(state, int.from_bytes(s[at : at + 8], "little"))
    v0, v1, v2, v3 = _take(state, int.from_bytes(s[whole:], "little") | (len(s) & 0xFF) << 56)
    v0, v1, v2, v3 = _rounds(v0, v1, v2 ^ 0xFF, v3, 4)
    return v0 ^ v1 ^ v2 ^ v3


def _take(state: tuple[int, int, int, int], word: int) -> tuple[int, int, int, int]:
    v0, v1, v2, v3 = state
    v0, v1, v2, v3 = _rounds(v0, v1, v2, v3 ^ word, 2)
    return v0 ^ word, v1, v2, v3


def _rounds(v0: int, v1: int, v2: int, v3: int, times: int) -> tuple[int, int, int, int]:
    for _ in range(times):
        v0 = (v0 + v1) & _M
        v1 = _rotate(v1, 13) ^ v0
        v0 = _rotate(v0, 32)
        v2 = (v2 + v3) & _M
        v3 = _rotate(v3, 16) ^ v2
        v0 = (v0 + v3) & _M
        v3 = _rotate(v3, 21) ^ v0
        v2 = (v2 + v1) & _M
        v1 = _rotate(v1, 17) ^ v2
        v2 = _rotate(v2, 32)
    return v0, v1, v2, v3


def _rotate(value: int, by: int) -> int:
    return ((value << by) | (value >> (64 - by))) & _M
