"""What the workers of one machine share: files, a folder, memory."""
