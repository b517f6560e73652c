"""Episodes to watch: played, drawn, and written as clips."""
