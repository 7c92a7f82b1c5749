_base_ = './rambo-recall_r50_log_inshop.py'
model = dict(head=dict(loss=dict(margin=0.)))
