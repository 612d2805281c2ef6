"""kforge for other programs: coding agents over MCP, trainers over OpenEnv, and trajectories of finished runs.

All of them get the verdicts that the command line gives: the same judge, the same policy, the same documents.
"""
