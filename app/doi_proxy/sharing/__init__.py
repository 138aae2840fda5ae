"""What the workers of one machine share: memory."""
