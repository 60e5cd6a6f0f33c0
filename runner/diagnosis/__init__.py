"""How far a sampler is from the softmax it stands for: measures, tables and figures."""
