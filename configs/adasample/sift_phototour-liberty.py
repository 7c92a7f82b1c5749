# the reference row: no training, test it without a checkpoint
_base_ = 'l2net_adasample_phototour-notredame.py'
model = dict(
    data_preprocessor=dict(patch_size=64),
    backbone=dict(_delete_=True, type='mmrank.SIFTPatches', patch_size=64))
val_dataloader = dict(dataset=dict(patch_size=64))
test_dataloader = dict(dataset=dict(scene='liberty', patch_size=64))
