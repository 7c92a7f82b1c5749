# Hardpos: always the hardest positive
_base_ = 'l2net-small_adasample_photo-patches.py'
model = dict(sampler=dict(lambda_val=float('inf')))
