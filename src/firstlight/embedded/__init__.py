"""A small engine for one machine: Llama-family folders, OpenAI-compatible HTTP, two kinds of process.

The front (`serve`) answers HTTP, turns text into tokens and back, and never imports torch. The worker (`worker`)
holds the model and knows only tokens. They talk over a Unix socket (`messages`, `channel`). A request's way:
`api` → `text` → `link` → socket → `worker` → `scheduler` → `model` → `sampler` → socket → `link` → `generation` →
`answers`. This part imports nothing else of firstlight; it is watched from outside like any other engine.
"""
