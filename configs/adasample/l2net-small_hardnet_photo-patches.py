# HardNet's positives: uniform draws, no weights
_base_ = 'l2net-small_adasample_photo-patches.py'
model = dict(sampler=dict(lambda_val=0))
