"""The trusted process: answers requests, takes a candidate through all stages, runs sanitizers and profilers."""
