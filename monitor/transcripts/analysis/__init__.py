"""What the core says of recorded runs: findings, savings, and limits with a promise."""
