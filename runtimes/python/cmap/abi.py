"""The numbers, structs and functions of ``cmap.h``. A test compares them with the header, whose texts say what each means."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_int32, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p
from enum import IntEnum, IntFlag

NEVER = 2**64 - 1
"""No time: of a deadline, and of what time does not bring about."""


class ErrorCode(IntEnum):
    """CMAP_ERROR_..: what is wrong with a call."""

    NULL = 1
    SIZE = 2
    TEXT = 3
    RANGE = 4
    HANDLE = 5
    ADDRESS = 6
    OPTIONS = 7
    NOT_RECORDING = 8
    BUSY = 9
    PANIC = 10
    FOREIGN_CONNECTION = 101
    NOT_IN_USE = 102
    NOT_PENDING = 103
    NOT_CHECKING = 104
    NOT_REFRESHING = 105
    CLEAR_WITHOUT_SERVICE = 106
    CLEAR_WITH_SERVICE = 107
    UNEXPECTED_SERVICE = 108
    SERVICE_UNKNOWN = 109
    OTHER_USE = 110
    MISUSE = 199


class Kind(IntEnum):
    """What an output says: something to do below 100, something that happened above."""

    NOTHING = 0
    CONNECT = 1
    CHECK = 2
    REFRESH = 3
    DELIVER = 4
    FAIL = 5
    CLOSE = 6
    INTERRUPT = 7
    WARMED_UP = 8
    EVENT_POOL_CREATED = 101
    EVENT_POOL_READY = 102
    EVENT_POOL_CLEARED = 103
    EVENT_POOL_CLOSED = 104
    EVENT_CONNECTION_CREATED = 105
    EVENT_CONNECTION_READY = 106
    EVENT_CONNECTION_CLOSED = 107
    EVENT_CHECK_OUT_STARTED = 108
    EVENT_CHECK_OUT_FAILED = 109
    EVENT_CHECKED_OUT = 110
    EVENT_CHECKED_IN = 111


class Closed(IntEnum):
    """CMAP_CLOSED_..: why a connection was closed."""

    STALE = 1
    IDLE = 2
    ERROR = 3
    POOL_CLOSED = 4
    SURPLUS = 5


class Failed(IntEnum):
    """CMAP_FAILED_..: why a check-out failed."""

    POOL_CLOSED = 1
    POOL_CLEARED = 2
    WAIT_QUEUE_TIMEOUT = 3
    DEADLINE = 4
    ESTABLISH = 5
    CANCELLED = 6
    WAIT_QUEUE_FULL = 7


class Cold(IntEnum):
    """CMAP_COLD_..: why a warm-up ended early. NOT_COLD is CMAP_WARM: it did not."""

    NOT_COLD = 0
    POOL_CLOSED = 1
    POOL_CLEARED = 2
    ESTABLISH = 3
    MAX_POOL_SIZE = 4


class Flag(IntFlag):
    """CMAP_FLAG_..: what else an output says."""

    SERVICE = 1
    INTERRUPT = 2
    RETRYABLE = 4


class Condition(IntEnum):
    """CMAP_CONDITION_..: whether a connection that comes back can be used again."""

    USABLE = 1
    ERRORED = 2


class Purpose(IntEnum):
    """CMAP_PURPOSE_..: what a connection in use is for."""

    OTHER = 1
    CURSOR = 2
    TRANSACTION = 3


class Phase(IntEnum):
    """CMAP_PHASE_..: where establishing a connection failed."""

    RESOLVE = 1
    PROXY = 2
    CONNECT = 3
    TLS = 4
    HELLO = 5
    AUTHENTICATE = 6


class Fault(IntEnum):
    """CMAP_FAULT_..: what failed."""

    NETWORK = 1
    TIMEOUT = 2
    SERVER = 3
    OTHER = 4


class Reaction(IntEnum):
    """CMAP_REACTION_..: what a failure does to the pool."""

    BY_RULES = 1
    KEEP_POOL = 2


class Found(IntEnum):
    """CMAP_CANCELLED and so on: what became of a check-out or a warm-up that was given up."""

    CANCELLED = 1
    DELIVERED = 2
    FINISHED = 3


class TimeoutReason(IntEnum):
    """CMAP_TIMEOUT_..: why the pool wants to be called."""

    NONE = 0
    OUTPUTS = 1
    CHECK_OUT = 2
    PRUNE_STALE = 3
    PRUNE_IDLE = 4
    HOST = 5
    POPULATE = 6
    BACKOFF = 7
    CREATION_RATE = 8
    RETIRE = 9
    HOLD = 10
    REFRESH = 11
    WARM_UP = 12
    OTHER = 99


class _Handle(ctypes.Structure):
    _fields_ = (("opaque", c_uint64 * 3),)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and bytes(self) == bytes(other)

    def __hash__(self) -> int:
        return hash(bytes(self))

    def __bool__(self) -> bool:
        return any(self.opaque)


class Connection(_Handle):
    """A connection, as its pool knows it. It is false if it is none."""


class CheckOut(_Handle):
    """A check-out, as its pool knows it. It is false if it is none."""


class Output(ctypes.Structure):
    """Something to do, or something that happened. Which fields it has is said at its kind, in the header."""

    _fields_ = (
        ("size", c_uint32),
        ("kind", c_uint32),
        ("reason", c_uint32),
        ("server", c_uint32),
        ("flags", c_uint32),
        ("service", c_uint8 * 12),
        ("connection", Connection),
        ("check_out", CheckOut),
        ("number", c_uint64),
        ("socket", c_uint64),
        ("nanos", c_uint64),
        ("lent_text", c_void_p),
        ("text_length", c_size_t),
    )

    text = ""
    """The text, copied: what `lent_text` points to is lent until the next call of the pool."""


_POOL = c_void_p
_NOW = c_uint64
_TEXT = (c_char_p, c_size_t)
_LENT = (POINTER(c_void_p), POINTER(c_size_t))
_CONNECTION = c_void_p
_CHECK_OUT = c_void_p
_OUTPUT = c_void_p
_SERVICE = c_char_p
_U32 = POINTER(c_uint32)
_U64 = POINTER(c_uint64)

# Structs go as addresses, which costs less than pointers that ctypes checks.
ARGUMENTS: dict[str, tuple[type, ...]] = {
    "cmap_pool_new": (*_TEXT, *_TEXT, _NOW, POINTER(c_void_p), c_char_p, c_size_t),
    "cmap_pool_ready": (_POOL, _NOW),
    "cmap_pool_close": (_POOL, _NOW),
    "cmap_pool_reset_after_fork": (_POOL, _NOW),
    "cmap_pool_check_out": (_POOL, _NOW, c_uint64, _U64, _CHECK_OUT, _OUTPUT),
    "cmap_pool_cancel_check_out": (_POOL, _NOW, _CHECK_OUT, _U32),
    "cmap_pool_check_in": (_POOL, _NOW, _CHECK_OUT, _CONNECTION, c_uint64, c_uint32, _OUTPUT),
    "cmap_pool_set_purpose": (_POOL, _CHECK_OUT, _CONNECTION, c_uint32),
    "cmap_pool_clear": (_POOL, _NOW, _SERVICE, c_uint32, *_TEXT),
    "cmap_pool_end_affinity": (_POOL, _NOW, c_uint64),
    "cmap_pool_hello": (_POOL, _NOW, _CONNECTION, _SERVICE),
    "cmap_pool_established": (_POOL, _NOW, _CONNECTION, c_uint64),
    "cmap_pool_establish_failed": (_POOL, _NOW, _CONNECTION, c_uint32, c_uint32, c_int32, c_uint32, *_TEXT),
    "cmap_pool_checked": (_POOL, _NOW, _CONNECTION, c_uint32),
    "cmap_pool_refreshed": (_POOL, _NOW, _CONNECTION, c_uint64),
    "cmap_pool_refresh_failed": (_POOL, _NOW, _CONNECTION, c_uint32, c_int32, c_uint32, *_TEXT),
    "cmap_pool_peer_closed": (_POOL, _NOW, _CONNECTION),
    "cmap_pool_handle_timeout": (_POOL, _NOW),
    "cmap_pool_resize": (_POOL, _NOW, *_TEXT),
    "cmap_pool_replace_connections": (_POOL, _NOW, c_uint64),
    "cmap_pool_renew_credential": (_POOL, _NOW),
    "cmap_pool_resume": (_POOL, _NOW),
    "cmap_pool_warm_up": (_POOL, _NOW, c_uint32, _U64),
    "cmap_pool_cancel_warm_up": (_POOL, _NOW, c_uint64, _U32),
    "cmap_pool_poll_output": (_POOL, _OUTPUT),
    "cmap_pool_poll_timeout": (_POOL, _U64, _U32),
    "cmap_pool_next_check_out_timeout": (_POOL, _U64),
    "cmap_pool_observe": (_POOL, c_uint32),
    "cmap_pool_problem": (_POOL, *_LENT),
    "cmap_pool_is_stale": (_POOL, _CONNECTION, _U32),
    "cmap_pool_statistics": (_POOL, _NOW, *_LENT),
    "cmap_pool_holders": (_POOL, *_LENT),
    "cmap_pool_snapshot": (_POOL, *_LENT),
    "cmap_pool_record_durations": (_POOL, c_uint32),
    "cmap_pool_start_recording": (_POOL, c_uint64),
    "cmap_pool_stop_recording": (_POOL,),
    "cmap_pool_note_holder": (_POOL, _CHECK_OUT, *_TEXT),
    "cmap_pool_recording": (_POOL, c_uint64, *_TEXT, *_LENT),
}


def declare(library: ctypes.PyDLL) -> None:
    """Gives the library's functions their types."""
    for name, arguments in ARGUMENTS.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, c_int32
    library.cmap_pool_free.argtypes, library.cmap_pool_free.restype = (_POOL,), None
    library.cmap_check_out_index.argtypes, library.cmap_check_out_index.restype = (_CHECK_OUT,), c_uint32
