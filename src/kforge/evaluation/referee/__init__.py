"""The trusted process: requests, the pipeline of one candidate, baselines, sanitizer and profiler runs, fork server."""
