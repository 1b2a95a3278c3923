"""An ELF file as it lies in memory: where code of the file is mapped, and bytes by their address."""

from firstlight.evidence.elf import Elf

_PAGE = 4096
_LOAD, _EH_FRAME = 1, 0x6474E550


class Image:
    """Addresses are the file's own, before the loader moves it."""

    def __init__(self, elf: Elf) -> None:
        self._elf = elf
        self._loaded = [one for one in elf.segments if one.kind == _LOAD]

    def address_of_code(self, offset: int) -> int:
        """Where the byte at `offset` of the file is mapped to be executed.

        Raises:
            ValueError: it is not.
        """
        for one in self._loaded:
            if one.executable and one.offset & -_PAGE <= offset < one.offset + one.size:
                return offset - one.offset + one.address
        raise ValueError(f"offset {offset:#x} is not mapped to be executed")

    def at(self, address: int, length: int) -> bytes:
        """Bytes of the file by the address that they are mapped at.

        Raises:
            ValueError: none are.
        """
        for one in self._loaded:
            if one.address <= address < one.address + one.size:
                there = address - one.address
                return self._elf.bytes_at(there + one.offset, min(length, one.size - there))
        raise ValueError(f"address {address:#x} is not in the file")

    @property
    def eh_frame_header(self) -> int:
        """The address of the table of call frame information.

        Raises:
            ValueError: the file has none.
        """
        for one in self._elf.segments:
            if one.kind == _EH_FRAME:
                return one.address
        raise ValueError("no table of call frame information")
