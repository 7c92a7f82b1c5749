_base_ = [
    '../_base_/models/embedding_r50_proxy-anchor.py',
    '../_base_/datasets/cub200.py',
    '../_base_/schedules/proxy_60e.py',
    '../_base_/retrieval_runtime.py',
]
model = dict(head=dict(num_classes=100))
custom_hooks = [
    dict(type='mmrank.HeadWarmupHook', epochs=5),
    dict(type='mmrank.FrozenBNHook'),
    dict(type='mmrank.RetrievalVisualizationHook'),
]
