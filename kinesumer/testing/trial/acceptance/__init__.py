"""Check on a user's own AWS account, or another endpoint, what the library promises."""
