"""A plugin of pytest: pymongo's tests run on cmap's pool."""

import cmap.pymongo

cmap.pymongo.install()
