"""What an error refuses, by the words that the system, a library or the engine has for it. Pure.

One table: the first row that matches tells the kind. `what` in a pattern is the option, path, name or library that it
is about. Lines that only pass on that somebody else failed have no kind.
"""

import re
from enum import Enum
from functools import lru_cache
from typing import NamedTuple


class Kind(Enum):
    """What was refused, or not there."""

    OPTION = "the engine's parser does not take an option"
    PATH = "a file or folder is not there"
    NAME = "a host name does not resolve"
    HUB = "the hub is not reached"
    HUB_REFUSES = "the hub does not give it out"
    UNREACHABLE = "no way leads to an address"
    REFUSED = "nobody answers at an address"
    LOCK = "a lock is not to be had"
    PORT = "an address is in use"
    PERMISSION = "a path may not be used"
    DISK = "a file system is full"
    SHARED_MEMORY = "shared memory is full"
    INSTALLATION = "a module, library, symbol or program is not there"
    MODEL = "the engine does not know this kind of model"
    GPU_MEMORY = "a GPU's memory is full"
    CACHE_ROOM = "nothing is left for the KV cache"
    GPU_TAKEN = "a GPU's memory was taken before the start"
    GPU_COUNT = "there are fewer GPUs than wanted"
    FILES = "no more files may be open"
    THREADS = "a thread or process cannot be made"
    BINDING = "cores or memory cannot be bound to"
    BUILD = "a build failed"
    DRIVER = "the driver of the GPU does not know what is wrong"
    KERNEL = "a kernel on the GPU failed"
    INSTRUCTION = "the CPU does not know an instruction"


class Refusal(NamedTuple):
    """A kind, and what it is about; empty if the line does not say."""

    kind: Kind
    what: str


_NOT_RESOLVED = (
    r"(?:name resolution|Name or service not known|NameResolutionError|nodename nor servname|getaddrinfo failed"
    r"|failed to lookup address|No address associated with hostname|no such host\b|Name does not resolve)"
)
_HUBS = r"[\w.-]{0,80}(?:huggingface|hf-mirror|\bhf\.co|modelscope)[\w.-]{0,80}"
_QUOTED_PATH = r"[`'\"]?(?P<what>/[^\s'`\"]{1,300})"
_IS_NOT = r"(?:does not exist|not found|is not a directory|does not appear to)"
_MAKE = r"(?:alloc\w*|reserve|create|initiali[sz]e|fit|grow|make|extend|find \w+)"
_NO_ROOM = r"(?:d?type|scal|spec|conf|quant|event|connector|transfer|layout)"
_NOT_BOUND = r"(?:invalid|not permitted|denied|fail)"
_TABLE = (
    (Kind.OPTION, r"(?:unrecognized|unknown) arguments?:? '?(?P<what>\S+)"),
    (Kind.OPTION, r"\bambiguous option: (?P<what>-\S+)"),
    (Kind.OPTION, r"\b(?:no such|unknown|unrecognized|invalid) option:? (?:-- )?[`'\"]?(?P<what>[\w-]+)"),
    (Kind.OPTION, r"\berror: (?:unexpected|invalid|unknown) argument:? [`'\"]?(?P<what>[\w.-]+)"),
    (Kind.OPTION, r"\berror: argument (?P<what>-[\w-]+)[\w/, -]{0,80}: "),
    (Kind.OPTION, r"\binvalid value .{0,80}? for '(?P<what>-[\w-]+)"),
    (Kind.OPTION, r"\berror: the following (?:required )?arguments .{0,40}(?:required|provided):? *(?P<what>\S*)"),
    (Kind.OPTION, r"\bMissing option '(?P<what>-[\w-]+)"),
    (Kind.SHARED_MEMORY, r"\bbus error\b|\bSIGBUS\b|\bsignal:? 7\b"),
    (Kind.SHARED_MEMORY, r"/dev/shm.{0,200}no space left|no space left.{0,200}/dev/shm"),
    (Kind.DISK, r"(?:No space left on device|Disk quota exceeded)(?:[^'/]{0,20}'?(?P<what>/[^'\s]{1,300}))?"),
    (Kind.PERMISSION, r"\[Errno (?:1|13|30)\] [^:]{1,60}: '(?P<what>/[^']{0,300})'"),
    (Kind.PERMISSION, r"['`\"](?P<what>/[^'`\"]{1,300})['`\"]: (?:Permission denied|Read-only file system)"),
    (Kind.PERMISSION, r"(?:Permission denied|Read-only file system)[^/]{1,40}(?P<what>/[^'\"\s,)]{1,300})"),
    (Kind.INSTALLATION, r"(?P<what>[\w.+-]{1,100}\.so[\w.]{0,20}): cannot open shared object file"),
    (Kind.INSTALLATION, r"\bNo module named '?(?P<what>[\w.]{1,80})"),
    (Kind.INSTALLATION, r"\bcannot import name '(?P<what>\w{1,80})' from"),
    (Kind.INSTALLATION, r"\bundefined symbol: (?P<what>\w{1,160})"),
    (Kind.INSTALLATION, r"\bversion [`'](?P<what>[\w.]{1,40})' not found \(required by"),
    (Kind.INSTALLATION, r"(?P<what>\b[\w.-]{1,60})[<>=!~]{1,2}[\w.,<>=!]{1,40} is required .{0,80}but found"),
    (Kind.INSTALLATION, r"\bmodule '(?P<what>[\w.]{1,80})' has no attribute"),
    (Kind.INSTALLATION, r"\bNo package metadata was found for (?P<what>[\w.-]{1,60})"),
    (Kind.INSTALLATION, r"(?:^|/)(?:ba|da|z)?sh: (?:line )?\d+: (?P<what>[^:\s]{1,200}): (?:command )?not found"),
    (Kind.INSTALLATION, r"\[Errno 2\] [^:]{1,60}: '(?P<what>[\w+-]{1,40})'"),
    (Kind.MODEL, r"model type [`'](?P<what>[^`']{1,80})[`'].{0,80}does not recognize"),
    (Kind.MODEL, r"Model architectures? \[?'?(?P<what>[\w, ']{1,120}?)'?\]? (?:are|is) not supported"),
    (Kind.MODEL, r"unknown model architecture: '(?P<what>[^']{1,80})'"),
    (Kind.MODEL, r"\bUnsupported (?:model (?:architecture|type)|architecture):? ?'?(?P<what>[\w.-]{0,80})"),
    (Kind.HUB, r"\b(?:429|50[0-4]) (?:Client|Server) Error.{0,200}(?P<what>https?://[^\s'\"]{1,200})"),
    (Kind.HUB_REFUSES, r"\b(?:401|403|404) Client Error.{0,200}(?P<what>https?://[^\s'\"]{1,200})"),
    (Kind.HUB_REFUSES, r"(?:GatedRepo|RepositoryNotFound|RevisionNotFound|(?<!Local)EntryNotFound)Error"),
    (Kind.HUB_REFUSES, r"gated repo\b|Access to model (?P<what>\S{1,120}) is restricted"),
    (Kind.PATH, r"(?<![\w.-])(?P<what>\.{0,2}/[\w./-]{1,300}) is not a local folder"),
    (Kind.HUB_REFUSES, r"(?P<what>[\w./-]{1,160}) is not a local folder and is not a valid model identifier"),
    (Kind.NAME, rf"host='(?P<what>[^']{{1,120}})'.{{0,800}}{_NOT_RESOLVED}"),
    (Kind.NAME, r"(?:Failed to|Could not|Cannot|Unable to) resolve (?:host:? )?'?(?P<what>[\w.-]{1,120})"),
    (Kind.NAME, _NOT_RESOLVED),
    (Kind.HUB, rf"host='(?P<what>{_HUBS})'"),
    (Kind.HUB, r"couldn't connect to '(?P<what>https?://[^'\s]{1,120})'"),
    (Kind.HUB, r"LocalEntryNotFoundError|OfflineModeIsEnabled|outgoing traffic has been disabled"),
    (Kind.PATH, r"\[Errno 2\] [^:]{1,60}: b?'(?P<what>[^']{1,300})'"),
    (Kind.PATH, r"Repo id must .{0,200}'(?P<what>/[^']{1,300})'"),
    (Kind.PATH, r"Invalid repository ID or local directory specified: '(?P<what>/[^']{1,300})'"),
    (Kind.PATH, rf"[`'\"](?P<what>/[^`'\"]{{1,300}})[`'\"]? {_IS_NOT}"),
    (Kind.PATH, rf"(?<![\w/])(?P<what>/[^\s'\"]{{1,300}}) {_IS_NOT}"),
    (Kind.PATH, r"(?:not (?:exist|found|find)|No such file or directory):? ?['`\"]?(?P<what>/[^\s'`\"]{1,300})"),
    (Kind.PATH, rf"\b(?:there is no|cannot find|could not find|no such) (?:\w{{1,12}} ){{0,4}}{_QUOTED_PATH}"),
    (Kind.PATH, r"failed to open\b[^/]{0,40}['`\" ](?P<what>/[^\s'`\"]{1,300})"),
    (Kind.PORT, r"address (?:is )?already in use|\bEADDRINUSE\b|\bErrno 98\b|os error 98\b"),
    (Kind.PORT, r"port\b.{0,30}\b(?:is|was) (?:already |currently )?(?:in use|used|occupied|taken|allocated)\b"),
    (Kind.LOCK, rf"\block acquisition failed\b.{{0,40}}?{_QUOTED_PATH}"),
    (Kind.LOCK, rf"\b(?:acquire|obtain|get) (?:the |a )?(?:file )?lock\b.{{0,40}}?{_QUOTED_PATH}"),
    (Kind.UNREACHABLE, r"\bNetwork is unreachable\b|\bNo route to host\b|\bE(?:NET|HOST)UNREACH\b"),
    (Kind.REFUSED, r"\bConnection refused\b|\bECONNREFUSED\b"),
    (Kind.REFUSED, r"client socket has timed out .{0,80}connect|failed to connect/validate to host"),
    (Kind.CACHE_ROOM, r"Not enough memory\..{0,40}mem-fraction-static|No available memory for the cache blocks"),
    (Kind.CACHE_ROOM, r"larger than the (?:available KV cache memory|maximum number of tokens .{0,40}in KV cache)"),
    (Kind.CACHE_ROOM, rf"not enough .{{0,40}}\bKV ?cache\b|failed to {_MAKE}\b.{{0,20}}\bKV cache\b(?! {_NO_ROOM})"),
    (Kind.GPU_TAKEN, r"Free memory on device (?P<what>\S{1,20}) \(.{0,40}\) on startup is less than"),
    (Kind.GPU_MEMORY, r"(?:CUDA|HIP|XPU|NPU) out of memory|CUDA_ERROR_OUT_OF_MEMORY|\bcuda\w*( \w+)?: out of memory"),
    (Kind.GPU_MEMORY, r"\bError \[(?:CUDA|HIP)\]: out of memory|(?:cuda|hip)Error(?:MemoryAllocation|OutOfMemory)\b"),
    (Kind.GPU_MEMORY, r"Cuda failure .{0,12}'out of memory'|CU(?:BLAS|DNN)\w*_STATUS_ALLOC_FAILED"),
    (Kind.GPU_COUNT, r"number of required GPUs exceeds|invalid device ordinal|\bNo (?:CUDA|HIP) GPUs are available"),
    (Kind.GPU_COUNT, r"\b(?:size|GPUs?|ranks?)\b.{0,40} (?:larger|more|greater) than .{0,60}\b(?:GPU|device)s"),
    (Kind.GPU_COUNT, r"no CUDA-capable device|CUDA_ERROR_NO_DEVICE|\bnot enough (?:GPU|device)s"),
    (Kind.BINDING, rf"\bsetting (?:mem|cpu|node)bind\b.{{0,60}}{_NOT_BOUND}"),
    (Kind.BINDING, rf"\b(?:set_mempolicy|mbind|numa_\w+|sched_setaffinity)\b.{{0,60}}{_NOT_BOUND}"),
    (Kind.THREADS, r"pthread_create failed|can't start new thread|Thread creation failed"),
    (Kind.THREADS, r"\bfork\b.{0,60}Resource temporarily unavailable|what\(\): +Resource temporarily"),
    (Kind.THREADS, r"(?:Errno|os error) 11\b.{0,40}temporarily|unable to create (?:new )?(?:native )?thread"),
    (Kind.BUILD, r"ninja: build stopped|Ninja build failed|Error building extension|compilation failed with \d"),
    (Kind.BUILD, r"Failed to find C compiler|Could not find (?:nvcc|CUDA installation)|\bnvcc fatal"),
    (Kind.FILES, r"^(?!.*inotify).*(?:too many open files|\bEMFILE\b)"),
    (Kind.DRIVER, r"CUDA unknown error|CUDA_ERROR_UNKNOWN|cudaErrorUnknown|\bCUDA\b.{0,40}\berror:? \(?999\b"),
    (Kind.KERNEL, r"(?P<what>illegal memory access|unspecified launch failure|misaligned address)"),
    (Kind.KERNEL, r"(?P<what>device-side assert|illegal instruction was encountered)"),
    (Kind.INSTRUCTION, r"\billegal instruction\b|\bSIGILL\b"),
)
_ROWS = tuple((kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _TABLE)
_MESSAGE_MAX = 1500
"""Characters that are read of a line: the longest refusals, with what was asked for and of whom, have some 700."""

_FOLLOWS = re.compile(
    r"Engine core init\w+ failed|EngineCore failed|WorkerProc (init\w+ )?failed|Engine process failed|EngineDeadError"
    r"|died (unexpectedly|during init)|is dead\b|child process|ChildFailedError|Connection (closed|reset) by peer"
    r"|Broken ?pipe|EOFError|ConnectionResetError|failed to start\b|Shard\w*Cannot|Received sigquit|DistStoreError"
    r"|store->get\(|recvValue failed|sendBytes failed|remote process exited|NCCL (remote|operation).{0,40}abort"
    r"|root cause above|stack trace for root cause|DistBackendError: NCCL error|complete standard error output",
    re.IGNORECASE,
)
"""Lines of those who only notice that somebody else has failed."""


@lru_cache(maxsize=4096)
def refusal(message: str) -> Refusal | None:
    """What a line tells to have been refused; None if it tells nothing of the kind."""
    said = message[:_MESSAGE_MAX]
    for kind, pattern in _ROWS:
        found = pattern.search(said)
        if found:
            return Refusal(kind, (found.groupdict().get("what") or "").strip(" ,:;'\"").rstrip("."))
    return None


def follows(message: str) -> bool:
    """Whether a line only tells that somebody else has failed."""
    return _FOLLOWS.search(message[:_MESSAGE_MAX]) is not None and not refusal(message)
