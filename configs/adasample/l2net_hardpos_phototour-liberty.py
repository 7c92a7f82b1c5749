# Hardpos+*: always the hardest positive
_base_ = 'l2net_adasample_phototour-liberty.py'
model = dict(sampler=dict(lambda_val=float('inf')))
