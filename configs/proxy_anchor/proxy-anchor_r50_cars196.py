_base_ = [
    '../_base_/models/embedding_r50_proxy-anchor.py',
    '../_base_/datasets/cars196.py',
    '../_base_/schedules/proxy_60e.py',
    '../_base_/retrieval_runtime.py',
]
model = dict(head=dict(num_classes=98))
param_scheduler = dict(step_size=10, gamma=0.5)
custom_hooks = [
    dict(type='mmrank.HeadWarmupHook', epochs=5),
    dict(type='mmrank.FrozenBNHook'),
    dict(type='mmrank.RetrievalVisualizationHook'),
]
