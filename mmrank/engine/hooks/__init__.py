from .atomic_checkpoint import AtomicCheckpointHook
from .descriptor_bank_hook import DescriptorBankHook

__all__ = ['AtomicCheckpointHook', 'DescriptorBankHook']
