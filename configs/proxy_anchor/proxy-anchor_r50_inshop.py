_base_ = [
    '../_base_/models/embedding_r50_proxy-anchor.py',
    '../_base_/datasets/inshop.py',
    '../_base_/schedules/proxy_60e_large.py',
    '../_base_/retrieval_runtime.py',
]
model = dict(head=dict(num_classes=3997))
custom_hooks = [
    dict(type='mmrank.HeadWarmupHook', epochs=5),
    dict(type='mmrank.RetrievalVisualizationHook'),
]
