"""Tests of this package: `python -m unittest discover -t . -s tests` in the folder above, with CMAP_LIBRARY and CMAP_TEST_SERVER set."""
