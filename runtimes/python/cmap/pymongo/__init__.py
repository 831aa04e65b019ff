"""pymongo on cmap's pool.

    import cmap.pymongo
    cmap.pymongo.install()

before the first client is made. Nothing else of an application changes: its clients, synchronous and asynchronous, have pools of this
package from then on. Monitors keep pymongo's.
"""

from __future__ import annotations

from typing import Any

import pymongo

_KNOWN = (4, 20)


def install(*, recording_bytes: int = 0) -> None:
    """Gives the pools of clients that are made from now on to cmap. Calling it again changes only `recording_bytes`.

    With `recording_bytes`, each pool keeps its latest calls in so much memory, for :func:`recordings`.

    It raises RuntimeError for another minor version of pymongo than 4.20, whose pool may have other methods.
    """
    _expect_known()
    from pymongo.asynchronous import pool as async_pool
    from pymongo.synchronous import pool as sync_pool

    from cmap.pymongo.asynchronous import AsyncCmapPool
    from cmap.pymongo.shared import Adapter
    from cmap.pymongo.synchronous import CmapPool

    Adapter.recording_bytes = recording_bytes
    # pymongo looks the class up when it makes a client.
    sync_pool.Pool = CmapPool  # type: ignore[misc]
    async_pool.Pool = AsyncCmapPool  # type: ignore[misc]


def recordings(client: Any, trigger: str = "") -> dict[tuple[str, int | None], bytes]:
    """What the pools of a client have recorded, by the addresses of their servers, as files for ``cmap replay``.

    Call it for an asynchronous client in the thread of its loop.

    It raises RuntimeError for another minor version of pymongo than 4.20.
    """
    _expect_known()
    from cmap.pymongo.shared import Adapter

    # A copy: a monitor's thread may find another server meanwhile.
    servers = list(client._topology._servers.values())
    pools = [server.pool for server in servers if isinstance(server.pool, Adapter)]
    return {pool.address: pool.recording(trigger) for pool in pools}


def _expect_known() -> None:
    """Before the adapters are imported: they import modules that another version may not have."""
    if pymongo.version_tuple[:2] != _KNOWN:
        known = ".".join(map(str, _KNOWN))
        raise RuntimeError(f"cmap.pymongo knows the pool of pymongo {known}, and this is {pymongo.version}")
