# The small network on GlyphRetrieval, from scratch.
_base_ = [
    './models/embedding_small.py',
    './datasets/glyphs.py',
    './schedules/glyphs_20e.py',
    './retrieval_runtime.py',
]
default_hooks = dict(checkpoint=dict(interval=20))
