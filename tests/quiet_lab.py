"""quiet_lab.py LOG: a connection over verbs where libibverbs would complain on the program's stderr: it stays on TCP, for a
reason that the log says (REASON_LOGGED in the environment).

Says what is wrong on stderr, with status 1. LOG is the library's log.
"""
import os

from echo_client import come
from lab_pair import listener, logged, pair, talk

ends = pair(listener())
come(lambda said: said, lambda: logged(os.environ["REASON_LOGGED"]), lambda: talk(ends, 1), 60)
assert not logged("sending on rxe"), "it has boarded"
