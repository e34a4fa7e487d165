"""Tasks: where problems come from, and what each seat privately knows of them."""
