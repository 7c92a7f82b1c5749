_base_ = [
    '../_base_/models/embedding_r50.py',
    '../_base_/datasets/sop.py',
    '../_base_/schedules/rambo_recall_80e.py',
    '../_base_/retrieval_runtime.py',
]
train_pipeline = [
    dict(type='mmrank.LoadImage'),
    dict(
        type='mmrank.ImageTransforms',
        transforms=[
            dict(type='Resize', size=(256, 256)),
            dict(type='RandomCrop', size=224),
            dict(type='RandomHorizontalFlip'),
        ]),
    dict(type='mmrank.PackRetrievalInputs'),
]
test_pipeline = [
    dict(type='mmrank.LoadImage'),
    dict(type='mmrank.ImageTransforms', transforms=[dict(type='Resize', size=(256, 256)), dict(type='CenterCrop', size=224)]),
    dict(type='mmrank.PackRetrievalInputs'),
]
# drop_last belongs to the batch sampler
train_dataloader = dict(
    batch_size=128,
    drop_last=False,
    batch_sampler=dict(type='mmrank.SuperLabelBatchSampler', samples_per_class=4, batches_per_pair=10),
    dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
model = dict(head=dict(
    pooling='avg',
    loss=dict(
        type='mmrank.RaMBORecallLoss',
        weighting='log',
        lambda_val=4.0,
        margin=0.02,
        memory_batches=3)))
optim_wrapper = dict(optimizer=dict(lr=3e-06))
