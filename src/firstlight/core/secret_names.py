"""Which names of options, variables and keys hold secrets, and which variables may be shown with their values."""

import re

_SECRET_NAME = re.compile(
    r"""(?ix) (?<![a-z0-9]) (?:
        (?: api | access | account | admin | auth | private | secret | signing ) [_-]? key
      | (?: access | api | auth | bearer | hub | id | refresh | session ) [_-]? tokens?
      | auth | authorization | bearer | cookies? | credentials? | jwt | keys? | passphrase | passwd | passwords? | pat
      | (?: user )? pass $ | pwd | secrets? | sig | signature | token
    ) (?![a-z0-9])"""
)
_HARMLESS_NAME = re.compile(
    r"""(?ix)
        (?: CUDA | CUDNN | FLASHINFER | FI | GLOO | GOMP | HF | HIP | HSA | KMP | MASTER | MKL | NCCL | NUMEXPR
          | NVIDIA | NVSHMEM | OMP | OMPI | OPENBLAS | PYTORCH | RAY | ROCR | SAFETENSORS | SGL | SGLANG | SLURM
          | TOKENIZERS | TORCH | TORCHELASTIC | TORCHINDUCTOR | TRANSFORMERS | TRITON | UCX | VLLM | XDG_CACHE ) _ \w+
      | (?: ALL | FTP | HTTP | HTTPS | NO ) _PROXY
      | CC | CXX | LANG | LD_LIBRARY_PATH | LD_PRELOAD | MALLOC_ARENA_MAX | MAX_JOBS | PATH | TMPDIR
      | PYTHONFAULTHANDLER | PYTHONPATH | PYTHONUNBUFFERED
      | RANK | LOCAL_RANK | NODE_RANK | WORLD_SIZE | LOCAL_WORLD_SIZE
    """
)
_DOUBTFUL_NAME = re.compile(r"(?i)auth|bearer|cookie|cred|jwt|key|pass(?!es)|secret|token(?!izer)")
_PLAIN_VALUE = re.compile(r"(?i)[\d.]{0,12}|true|false|yes|no|on|off")
"""What a variable of a doubtful name may show all the same: VLLM_MAX_TOKENS=2048."""
_SHELLS_OWN = frozenset({"PWD", "OLDPWD"})
"""Variables in which every shell keeps its working directory; as an option or a key, `pwd` is a password."""


def secret_name(name: str) -> bool:
    """True if something of this name (an option, a variable) is to be kept secret."""
    return _SECRET_NAME.search(name) is not None and name not in _SHELLS_OWN


def may_be_shown(name: str, value: str) -> bool:
    """True if a variable of the environment is known to be harmless and telling: its value is no secret."""
    if not _HARMLESS_NAME.fullmatch(name) or secret_name(name):
        return False
    return not _DOUBTFUL_NAME.search(name) or _PLAIN_VALUE.fullmatch(value) is not None
