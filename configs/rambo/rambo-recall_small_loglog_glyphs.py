_base_ = './rambo-recall_small_log_glyphs.py'
model = dict(head=dict(loss=dict(weighting='loglog')))
