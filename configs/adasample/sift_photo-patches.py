# the reference row: no training, test it without a checkpoint
_base_ = 'l2net-small_adasample_photo-patches.py'
model = dict(
    data_preprocessor=dict(patch_size=64),
    backbone=dict(_delete_=True, type='mmrank.SIFTPatches', patch_size=64))
val_dataloader = dict(dataset=dict(patch_size=64))
test_dataloader = dict(dataset=dict(patch_size=64))
