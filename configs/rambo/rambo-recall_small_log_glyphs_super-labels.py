# batches of two scripts at a time
_base_ = './rambo-recall_small_log_glyphs.py'
train_dataloader = dict(batch_sampler=dict(_delete_=True, type='mmrank.SuperLabelBatchSampler', samples_per_class=4, batches_per_pair=10))
