_base_ = [
    '../_base_/models/embedding_r50.py',
    '../_base_/datasets/inshop.py',
    '../_base_/schedules/proxy_60e.py',
    '../_base_/retrieval_runtime.py',
]
# the queue fills from epoch 2, positive weights act from epoch 3
model = dict(head=dict(
    num_classes=3997,
    loss=dict(
        type='mmrank.ProxyISALoss',
        margin=0.1,
        alpha=32.,
        k=0.1,
        V=100.,
        tau=1.5,
        h=0.15,
        margin_lambda=0.1,
        memory_size=55000)))
train_dataloader = dict(batch_size=128)
optim_wrapper = dict(optimizer=dict(lr=6e-4))
param_scheduler = dict(step_size=20, gamma=0.25)
custom_hooks = [
    dict(type='mmrank.HeadWarmupHook', epochs=1),
    dict(type='mmrank.RetrievalVisualizationHook'),
]
