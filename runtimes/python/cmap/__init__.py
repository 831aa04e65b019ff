"""MongoDB's connection pool as a state machine without I/O.

:class:`Pool` is a thin class over the calls of the C library, whose manual is ``cmap.h``; :mod:`cmap.pymongo` puts it under pymongo.
"""

from cmap.abi import (
    NEVER,
    CheckOut,
    Closed,
    Cold,
    Condition,
    Connection,
    ErrorCode,
    Failed,
    Fault,
    Flag,
    Found,
    Kind,
    Output,
    Phase,
    Purpose,
    Reaction,
    TimeoutReason,
)
from cmap.library import VERSION, LibraryError
from cmap.pool import Error, Pool, check_out_index

__version__ = VERSION

__all__ = [
    "NEVER",
    "CheckOut",
    "Closed",
    "Cold",
    "Condition",
    "Connection",
    "Error",
    "ErrorCode",
    "Failed",
    "Fault",
    "Flag",
    "Found",
    "Kind",
    "LibraryError",
    "Output",
    "Phase",
    "Pool",
    "Purpose",
    "Reaction",
    "TimeoutReason",
    "check_out_index",
]
