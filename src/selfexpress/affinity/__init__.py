"""From a network to sparse coefficients, and from coefficients to a graph."""
