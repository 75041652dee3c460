"""The encoder of CIFAR-10, trained without labels, and its training."""
