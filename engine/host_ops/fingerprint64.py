"""FarmHash Fingerprint64: the 64-bit hash of strings that TensorFlow Transform uses for unknown words.

A plain transcription of farmhashna's Hash64 (Pike, 2014). Equal on every platform and in every release; that is its
contract ("Fingerprint"). About 3 µs for a short string: it runs on distinct values, never on rows.
"""

from __future__ import annotations

from typing import Final

_M: Final = (1 << 64) - 1
_K0: Final = 0xC3A5C85C97CB3127
_K1: Final = 0xB492B66FBE98F273
_K2: Final = 0x9AE16A3B2F90404F


def fingerprint64(text: str | bytes) -> int:
    """The hash of a string's UTF-8 bytes, 0 … 2^64 − 1."""
    s = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    n = len(s)
    if n <= 16:
        return _up_to_16(s, n)
    if n <= 32:
        return _up_to_32(s, n)
    if n <= 64:
        return _up_to_64(s, n)
    return _longer(s, n)


def _fetch(s: bytes, at: int) -> int:
    return int.from_bytes(s[at : at + 8], "little")


def _rotate(value: int, by: int) -> int:
    return ((value >> by) | (value << (64 - by))) & _M


def _shift_mix(value: int) -> int:
    return value ^ (value >> 47)


def _mix(u: int, v: int, mul: int) -> int:
    a = ((u ^ v) * mul) & _M
    a ^= a >> 47
    b = ((v ^ a) * mul) & _M
    b ^= b >> 47
    return (b * mul) & _M


def _up_to_16(s: bytes, n: int) -> int:
    if n >= 8:
        mul = _K2 + n * 2
        a = (_fetch(s, 0) + _K2) & _M
        b = _fetch(s, n - 8)
        c = (_rotate(b, 37) * mul + a) & _M
        d = ((_rotate(a, 25) + b) * mul) & _M
        return _mix(c, d, mul & _M)
    if n >= 4:
        mul = (_K2 + n * 2) & _M
        a = int.from_bytes(s[:4], "little")
        return _mix((n + (a << 3)) & _M, int.from_bytes(s[n - 4 :], "little"), mul)
    if n:
        y = s[0] + (s[n >> 1] << 8)
        z = n + (s[n - 1] << 2)
        return (_shift_mix((y * _K2 ^ z * _K0) & _M) * _K2) & _M
    return _K2


def _up_to_32(s: bytes, n: int) -> int:
    mul = (_K2 + n * 2) & _M
    a = (_fetch(s, 0) * _K1) & _M
    b = _fetch(s, 8)
    c = (_fetch(s, n - 8) * mul) & _M
    d = (_fetch(s, n - 16) * _K2) & _M
    return _mix((_rotate((a + b) & _M, 43) + _rotate(c, 30) + d) & _M, (a + _rotate((b + _K2) & _M, 18) + c) & _M, mul)


def _up_to_64(s: bytes, n: int) -> int:
    mul = (_K2 + n * 2) & _M
    a = (_fetch(s, 0) * _K2) & _M
    b = _fetch(s, 8)
    c = (_fetch(s, n - 8) * mul) & _M
    d = (_fetch(s, n - 16) * _K2) & _M
    y = (_rotate((a + b) & _M, 43) + _rotate(c, 30) + d) & _M
    z = _mix(y, (a + _rotate((b + _K2) & _M, 18) + c) & _M, mul)
    e = (_fetch(s, 16) * mul) & _M
    f = _fetch(s, 24)
    g = ((y + _fetch(s, n - 32)) * mul) & _M
    h = ((z + _fetch(s, n - 24)) * mul) & _M
    return _mix((_rotate((e + f) & _M, 43) + _rotate(g, 30) + h) & _M, (e + _rotate((f + a) & _M, 18) + g) & _M, mul)


def _weak(s: bytes, at: int, a: int, b: int) -> tuple[int, int]:
    w, x, y, z = (_fetch(s, at + 8 * i) for i in range(4))
    a = (a + w) & _M
    b = _rotate((b + a + z) & _M, 21)
    c = a
    a = (a + x + y) & _M
    b = (b + _rotate(a, 44)) & _M
    return (a + z) & _M, (b + c) & _M


def _longer(s: bytes, n: int) -> int:
    seed = 81
    x, y = seed, (seed * _K1 + 113) & _M
    z = (_shift_mix((y * _K2 + 113) & _M) * _K2) & _M
    v, w = (0, 0), (0, 0)
    x = (x * _K2 + _fetch(s, 0)) & _M
    at, end = 0, ((n - 1) // 64) * 64
    while at != end:
        x = (_rotate((x + y + v[0] + _fetch(s, at + 8)) & _M, 37) * _K1) & _M
        y = (_rotate((y + v[1] + _fetch(s, at + 48)) & _M, 42) * _K1) & _M
        x ^= w[1]
        y = (y + v[0] + _fetch(s, at + 40)) & _M
        z = (_rotate((z + w[0]) & _M, 33) * _K1) & _M
        v = _weak(s, at, (v[1] * _K1) & _M, (x + w[0]) & _M)
        w = _weak(s, at + 32, (z + w[1]) & _M, (y + _fetch(s, at + 16)) & _M)
        z, x = x, z
        at += 64
    mul = (_K1 + ((z & 0xFF) << 1)) & _M
    at = end + ((n - 1) & 63) - 63
    w = ((w[0] + ((n - 1) & 63)) & _M, w[1])
    v = ((v[0] + w[0]) & _M, v[1])
    w = ((w[0] + v[0]) & _M, w[1])
    x = (_rotate((x + y + v[0] + _fetch(s, at + 8)) & _M, 37) * mul) & _M
    y = (_rotate((y + v[1] + _fetch(s, at + 48)) & _M, 42) * mul) & _M
    x ^= (w[1] * 9) & _M
    y = (y + v[0] * 9 + _fetch(s, at + 40)) & _M
    z = (_rotate((z + w[0]) & _M, 33) * mul) & _M
    v = _weak(s, at, (v[1] * mul) & _M, (x + w[0]) & _M)
    w = _weak(s, at + 32, (z + w[1]) & _M, (y + _fetch(s, at + 16)) & _M)
    z, x = x, z
    return _mix((_mix(v[0], w[0], mul) + _shift_mix(y) * _K0 + z) & _M, (_mix(v[1], w[1], mul) + x) & _M, mul)
