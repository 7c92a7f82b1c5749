_base_ = './rambo-recall_r50_loglog_sop.py'
model = dict(head=dict(loss=dict(margin=0.)))
