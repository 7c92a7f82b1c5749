# AdaSample+*, trained on yosemite, tested on liberty and notredame
_base_ = [
    '../_base_/models/l2net_adasample.py',
    '../_base_/datasets/photo_tour.py',
    '../_base_/schedules/descriptor_90e.py',
    '../_base_/descriptor_runtime.py',
]
model = dict(symmetries=True)
train_dataloader = dict(dataset=dict(scene='yosemite'))
val_dataloader = dict(dataset=dict(scene='liberty'))
test_dataloader = dict(dataset=dict(scene='notredame'))
