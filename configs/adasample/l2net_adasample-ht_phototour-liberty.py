# the Euclidean hinge triplet loss (HT)
_base_ = 'l2net_adasample_phototour-liberty.py'
model = dict(loss=dict(distance='euclidean'))
