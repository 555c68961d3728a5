"""HTML, charts and text from plain values: shared by statistics, training and the terminal."""
