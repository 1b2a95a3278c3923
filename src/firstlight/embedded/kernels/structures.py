"""The structures of ops.h, field by field."""

import ctypes
from ctypes import c_float, c_int32, c_int64, c_void_p

PAGE = 16
"""Positions of a page, as in ops.h."""

ADD_NORM, LINEAR, PLACE, ATTEND, SWIGLU, COPY = range(6)
"""`enum op_kind`."""

F32, BF16, F16, Q4, Q8 = range(5)
"""`enum number`."""


class Matrix(ctypes.Structure):
    _fields_ = (("data", c_void_p), ("stride", c_int64), ("width", c_int64))


class Weight(ctypes.Structure):
    _fields_ = (
        ("rows", c_int64),
        ("columns", c_int64),
        ("row_bytes", c_int64),
        ("data", c_void_p),
        ("scale", c_void_p),
        ("minimum", c_void_p),
        ("groups", c_int64),
        ("kind", c_int32),
        ("scale_kind", c_int32),
        ("group_shift", c_int32),
    )


class Cache(ctypes.Structure):
    _fields_ = (
        ("keys", c_void_p),
        ("values", c_void_p),
        ("pages", c_int64),
        ("kv_heads", c_int64),
        ("head_dim", c_int64),
        ("kind", c_int32),
    )


class Op(ctypes.Structure):
    _fields_ = (
        ("kind", c_int32),
        ("eps", c_float),
        ("x", Matrix),
        ("delta", Matrix),
        ("out", Matrix),
        ("norm", c_void_p),
        ("bias", c_void_p),
        ("weight", Weight),
        ("cache", Cache),
        ("q_norm", c_void_p),
        ("k_norm", c_void_p),
        ("cos", c_void_p),
        ("sin", c_void_p),
        ("positions", c_int64),
        ("window", c_int64),
        ("scale", c_float),
    )


class RowsHeader(ctypes.Structure):
    _fields_ = (
        ("count", c_int64),
        ("positions", c_void_p),
        ("sequences", c_void_p),
        ("tables", c_void_p),
        ("starts", c_void_p),
        ("sequence_count", c_int64),
    )


def declare(library: ctypes.CDLL) -> ctypes.CDLL:
    """Tell ctypes the types of the library's functions."""
    library.firstlight_op_size.restype = c_int64
    library.firstlight_threaded.restype = c_int32
    library.firstlight_scratch.argtypes = (c_void_p,)
    library.firstlight_scratch.restype = c_int64
    library.firstlight_run.argtypes = (c_void_p, c_int64, c_void_p, c_void_p, c_int64, c_int32)
    library.firstlight_run.restype = c_int64
    library.firstlight_dequantise.argtypes = (c_void_p, c_int32, c_void_p, c_void_p, c_int64, c_int32)
    library.firstlight_dequantise.restype = None
    return library
