"""Grading: what a final message is worth. Import the grader that you need; none of them loads anything heavy before it is built."""
