_base_ = './proxy-anchor_r50_cars196.py'
model = dict(head=dict(embedding_size=64))
