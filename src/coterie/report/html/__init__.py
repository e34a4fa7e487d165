"""`coterie report`: the records of a folder as one HTML file that needs nothing else."""
