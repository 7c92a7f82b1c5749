# 12 epochs on one GPU, 8 images a batch, the rate dropped after the 9th.
# The first 500 iterations warm up, as in MMDetection's 1x schedule; the paper
# does not speak of it. The rate is the one at which MMDetection trains
# cross-entropy on VOC, there with 16 images a batch; RaMBO configs set 0.1.
train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=12, val_interval=1)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='SGD', lr=0.01, momentum=0.9, weight_decay=0.0001))
param_scheduler = [
    dict(
        type='LinearLR', start_factor=0.001, by_epoch=False, begin=0,
        end=500),
    dict(
        type='MultiStepLR',
        by_epoch=True,
        begin=0,
        end=12,
        milestones=[9],
        gamma=0.1),
]
auto_scale_lr = dict(enable=False, base_batch_size=8)
