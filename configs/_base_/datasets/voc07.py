# VOC 07 trainval for training, VOC 07 test for testing; otherwise voc0712.py
_base_ = './voc0712.py'
train_dataloader = dict(
    dataset=dict(
        _delete_=True,
        type='VOCDataset',
        data_root=_base_.data_root,
        ann_file='VOC2007/ImageSets/Main/trainval.txt',
        data_prefix=dict(sub_data_root='VOC2007/'),
        filter_cfg=_base_.filter_cfg,
        pipeline=_base_.train_pipeline))
