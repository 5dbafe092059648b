"""Model families: geometry, weights and forward passes."""
