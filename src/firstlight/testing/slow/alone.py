"""Ways of one process: it reads, writes, grows, speaks or computes."""

import mmap
import os
import random
import tempfile
import threading
import zlib
from multiprocessing import shared_memory
from pathlib import Path

from firstlight.testing.slow.beats import Beats, burn
from firstlight.testing.stage import call_myself, say

MIB = 1 << 20


def reads_weights(when: Beats) -> None:
    with tempfile.TemporaryFile(buffering=0) as weights:
        weights.write(bytes(64 * MIB))
        weights.seek(0)
        for _ in when:
            if not weights.read(MIB):
                weights.seek(0)


def maps_weights(when: Beats) -> None:
    with tempfile.TemporaryFile() as weights:
        weights.truncate(512 * MIB)
        with mmap.mmap(weights.fileno(), 0) as mapped:
            for at, _ in enumerate(when):
                begin = at * 4 * MIB % (500 * MIB)
                for page in range(begin, begin + 4 * MIB, mmap.PAGESIZE):
                    mapped[page] = 1


def writes_a_snapshot(when: Beats) -> None:
    with tempfile.TemporaryFile(buffering=0) as file:
        for at, _ in enumerate(when):
            file.seek(at * MIB % (64 * MIB))
            file.write(bytes(MIB))


def fills_a_cache(when: Beats) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for at, _ in enumerate(when):
            Path(folder, f"kernel_{at}.cubin").write_bytes(bytes(256 * 1024))


def grows(when: Beats) -> None:
    kept = [bytearray(4 * MIB) for _ in when]
    del kept


def fills_shared_memory(when: Beats) -> None:
    segment = shared_memory.SharedMemory(create=True, size=256 * MIB)
    memory = segment.buf
    assert memory is not None
    try:
        for at, _ in enumerate(when):
            begin = at * 2 * MIB % (250 * MIB)
            memory[begin : begin + 2 * MIB] = bytes(2 * MIB)
    finally:
        memory.release()
        segment.close()
        segment.unlink()


def is_fed_by_a_pipe(when: Beats) -> None:
    source, sink = os.pipe()

    def feed() -> None:
        for _ in when:
            os.write(sink, bytes(16384))
        os.close(sink)

    threading.Thread(target=feed, daemon=True).start()
    while os.read(source, 65536):
        pass


def logs(when: Beats) -> None:
    words = ("tokenizer", "config", "layer", "head", "norm", "rotary", "cache", "sampler", "graph", "scheduler")
    for at, _ in enumerate(when):
        say(f"{random.choice(words)} {random.choice(words)} of part {chr(97 + at % 26)} is {random.choice(words)}")


def counts(when: Beats) -> None:
    """As the bars of tqdm do, in a log where each update is a line."""
    for at, _ in enumerate(when):
        shards = f"Completed | {at}/1000 [00:{at % 60:02}<09:59,  1.2s/it]"
        say(f"Loading safetensors checkpoint shards: {at / 10:3.0f}% {shards}")


def computes(when: Beats) -> None:
    """In bursts, with the interpreter lock."""
    for _ in when:
        burn(0.4)


def computes_in_native_code(when: Beats) -> None:
    """In bursts, without the interpreter lock."""
    data = random.randbytes(4 * MIB)
    for _ in when:
        zlib.compress(data, 6)


def renames_itself(when: Beats) -> None:
    """Computes a little under one name after the other, as engines do from phase to phase."""
    for at, _ in enumerate(when):
        call_myself(f"scheduler_TP{at % 2}")
        burn(0.3)
