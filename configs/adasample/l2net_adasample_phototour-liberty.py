# AdaSample+*, trained on liberty, tested on notredame and yosemite
_base_ = [
    '../_base_/models/l2net_adasample.py',
    '../_base_/datasets/photo_tour.py',
    '../_base_/schedules/descriptor_90e.py',
    '../_base_/descriptor_runtime.py',
]
model = dict(symmetries=True)
train_dataloader = dict(dataset=dict(scene='liberty'))
val_dataloader = dict(dataset=dict(scene='notredame'))
test_dataloader = dict(dataset=dict(scene='yosemite'))
