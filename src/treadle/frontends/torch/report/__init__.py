"""What was decided, for people: reports of models and graphs, and the page of operators."""
