# The first 98 classes train, the last 98 test: the retrieval split.
_base_ = './retrieval_224px.py'
dataset_type = 'mmrank.CarsDataset'
data_root = 'data/cars196/'
train_dataloader = dict(dataset=dict(type=dataset_type, data_root=data_root))
val_dataloader = dict(dataset=dict(type=dataset_type, data_root=data_root))
test_dataloader = val_dataloader
