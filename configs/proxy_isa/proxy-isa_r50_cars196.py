_base_ = [
    '../_base_/models/embedding_r50.py',
    '../_base_/datasets/cars196.py',
    '../_base_/schedules/proxy_60e.py',
    '../_base_/retrieval_runtime.py',
]
# the queue fills from epoch 2, positive weights act from epoch 3
model = dict(head=dict(
    num_classes=98,
    loss=dict(
        type='mmrank.ProxyISALoss',
        margin=0.1,
        alpha=32.,
        k=0.4,
        V=100.,
        tau=1.5,
        h=0.15,
        margin_lambda=0.1,
        memory_size=55000)))
train_dataloader = dict(batch_size=128)
param_scheduler = dict(step_size=10, gamma=0.5)
custom_hooks = [
    dict(type='mmrank.FrozenBNHook'),
    dict(type='mmrank.RetrievalVisualizationHook'),
]
