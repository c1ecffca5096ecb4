"""Training under Hugging Face's Trainer: batches by tokens, the best weights by MAP on development questions."""
