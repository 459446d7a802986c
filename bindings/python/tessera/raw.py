"""The C library as SWIG has it: handles are int, each call returns its status first. The layer above is meant for use."""
from ._raw import *  # noqa: F401,F403
