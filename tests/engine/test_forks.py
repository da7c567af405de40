"""Processes that fork while a thread compiles a kernel."""

import subprocess
import sys

CHILD = """
import os, signal, threading, time
import rangecast.model.sets.forks
from numba.core.compiler_lock import global_compiler_lock
from rangecast.kernels.jit import jit

compiling, forks = threading.Event(), threading.Event()

def compile_slowly():
    with global_compiler_lock:
        compiling.set()
        forks.wait()
        time.sleep(0.2)  # a fork that doesn't wait is over by then

thread = threading.Thread(target=compile_slowly)
thread.start()
compiling.wait()
os.register_at_fork(before=forks.set)
child = os.fork()
if child == 0:
    signal.alarm(60)
    os._exit(jit(lambda: 7)())
thread.join()
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
with global_compiler_lock:
    print("free in the parent, too")
"""


def test_a_child_compiles_though_a_thread_of_its_parent_was_compiling():
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True)
    assert done.stdout == "free in the parent, too\n", done.stderr
