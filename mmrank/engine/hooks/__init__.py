from .atomic_checkpoint import AtomicCheckpointHook
from .class_names_check import ClassNamesCheckHook
from .descriptor_bank_hook import DescriptorBankHook
from .seed_by_iteration_hook import SeedByIterationHook

__all__ = [
    'AtomicCheckpointHook',
    'ClassNamesCheckHook',
    'DescriptorBankHook',
    'SeedByIterationHook',
]
