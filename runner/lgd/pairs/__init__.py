"""Fine-tune a BERT on sentence pairs, where the vectors that LGD hashes move (LGD paper, section 3.2)."""
