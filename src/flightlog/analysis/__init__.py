"""What happened in sessions and what it cost: cache misses, context, findings. No model is asked."""
