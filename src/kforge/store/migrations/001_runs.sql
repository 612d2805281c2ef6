-- One row a run. Rows of several roots may share one database; a speedup that nobody measured is NULL.
CREATE TABLE runs (
    root TEXT NOT NULL,
    id TEXT NOT NULL,
    mark TEXT NOT NULL,
    created TEXT NOT NULL,
    problem TEXT NOT NULL,
    platform TEXT NOT NULL,
    model TEXT NOT NULL,
    status TEXT NOT NULL,
    stopped TEXT,
    attempts INTEGER NOT NULL,
    speedup_low DOUBLE PRECISION,
    speedup_median DOUBLE PRECISION,
    speedup_high DOUBLE PRECISION,
    PRIMARY KEY (root, id)
);
CREATE INDEX runs_by_problem ON runs (problem, platform);
