"""Training of the network: objective, gradient, loop."""
