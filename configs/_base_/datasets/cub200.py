# The first 100 classes train, the last 100 test: the retrieval split.
_base_ = './retrieval_224px.py'
dataset_type = 'mmrank.CUBDataset'
data_root = 'data/CUB_200_2011/'
train_dataloader = dict(dataset=dict(type=dataset_type, data_root=data_root))
val_dataloader = dict(dataset=dict(type=dataset_type, data_root=data_root))
test_dataloader = val_dataloader
