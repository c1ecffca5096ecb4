"""The monolithic and truncated baselines: one encoder reads query and document together (CT-4, CT-6, TA-2)."""
