"""From a graph that Dynamo captured to something that runs, and what is asked of torch first."""
