import gc

import pytest
from numba.core.dispatcher import Dispatcher

from rangecast.cli.warm import Verb, compile_for

COMMANDS = {
    Verb.MATCH: ["match", "events.parquet", "subscriptions.parquet"],
    Verb.RANK: ["rank", "events.parquet", "subscriptions.parquet", "-k", "3"],
    Verb.COVER: ["cover", "subscriptions.parquet"],
    Verb.MERGE: ["merge", "subscriptions.parquet", "--max-ranges", "50"],
}


def signatures():
    """All signatures of our kernels that are ready to be called."""
    return {
        (kernel.py_func.__module__, kernel.py_func.__qualname__, signature)
        for kernel in gc.get_objects()
        # By its type: to ask a dead proxy, which a busy process may hold, raises an error.
        if issubclass(type(kernel), Dispatcher)
        and kernel.py_func.__module__.startswith("rangecast.")
        for signature in kernel.overloads
    }


@pytest.mark.parametrize("verb", COMMANDS)
def test_a_command_needs_no_other_kernels_than_those_compiled_ahead(cli, tmp_path, verb):
    compile_for(verb)
    ahead = signatures()
    made = tmp_path / "market"
    cli("generate", "market", "-o", made, "--subscriptions", "4000", "--events", "1000")
    name, *files = COMMANDS[verb]
    files = [made / one if one.endswith("parquet") else one for one in files]
    cli(name, *files, "--space", made / "space.toml", "-o", tmp_path / "out.parquet")
    assert signatures() - ahead == set()


def test_kernels_are_compiled_in_processes_of_their_own(cli):
    for processes in ("1", "2"):
        lines = cli("warm", "match", "rank", "--processes", processes).stderr.splitlines()
        assert sorted(line.partition(":")[0] for line in lines[:-1]) == ["match", "rank"]
        assert lines[-1].startswith("compiled kernels are kept in ")
