_base_ = [
    '../_base_/models/embedding_r50_proxy-isa.py',
    '../_base_/datasets/inshop.py',
    '../_base_/schedules/proxy_60e_large.py',
    '../_base_/retrieval_runtime.py',
]
model = dict(head=dict(num_classes=3997, loss=dict(k=0.1)))
train_dataloader = dict(batch_size=128)
custom_hooks = [
    dict(type='mmrank.HeadWarmupHook', epochs=1),
    dict(type='mmrank.RetrievalVisualizationHook'),
]
