"""Files on disk that are there whole or not at all, and a store of documents' states in many of them."""
