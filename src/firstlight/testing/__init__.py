"""Shipped with firstlight: programs that really stall, and slow starts that are really healthy."""
