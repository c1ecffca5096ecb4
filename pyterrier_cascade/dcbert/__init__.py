"""DC-BERT: questions and documents encoded apart, documents once, and joint layers over both."""
