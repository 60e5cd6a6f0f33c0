"""Turn an encoder's hidden states into losses and gradients: by a class matrix and proposals, or by one output."""
