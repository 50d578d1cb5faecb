"""Limits what a reader of the store sees to one project, at the one place through which every query goes.

Each table that a query names is replaced by what the project may see of it (a common table expression of the same
name). A table that has no rule here is empty: a new one is not seen before that is decided. Pure.
"""

from __future__ import annotations

import re

from orchestrator.project import DEFAULT_PROJECT, check_project, to_column
from orchestrator.store.audited import KEYS, TABLES_NOT_AUDITED

_CLUSTERS = "SELECT uid FROM {place}clusters WHERE project = '{column}'"
_OF_CLUSTER = f"cluster_uid IN ({_CLUSTERS})"
# Names of clusters in events and leases: in the default project without a slash, see project.qualify_name.
_QUALIFIED = "substr({name}, 1, {length}) = '{prefix}'"
_BARE = "{name} <> '' AND replace({name}, '/', '') = {name}"
# Whoever drives a job holds watch:UID/JOB; without the digits of JOB it has the cluster alone.
_WATCHED = (
    "rtrim(name, '0123456789') IN (SELECT 'watch:' || uid || '/' FROM {place}clusters WHERE project = '{column}')"
)
_NONE, _ALL = "1 = 0", "1 = 1"
_RULES: dict[str, str] = {
    "clusters": "project = '{column}'",
    "intents": _OF_CLUSTER,
    "jobs": _OF_CLUSTER,
    "attempts": _OF_CLUSTER,
    "admissions": _OF_CLUSTER,
    "pipelines": f"uid IN (SELECT pipeline FROM {{place}}jobs WHERE {_OF_CLUSTER})",  # noqa: S608  # constants
    "slice_owners": f"token IN (SELECT token FROM {{place}}intents WHERE {_OF_CLUSTER})",  # noqa: S608  # the same
    "bills": f"token IN (SELECT token FROM {{place}}intents WHERE {_OF_CLUSTER})",  # noqa: S608  # the same
    "predictions": f"run_id IN (SELECT run_id FROM {{place}}jobs WHERE {_OF_CLUSTER})",  # noqa: S608  # the same
    "blocks": "project = '{project}'",
    "orders": "project = '{project}'",
    "budgets": "project = '{project}'",
    "meta": _ALL,  # versions, and the head of the chain
}
# Events of no cluster that concern a project: those of its rows in these tables.
_OF_NO_CLUSTER = {"bills": "line", "blocks": "block_id", "predictions": "run_id"}
_TABLE = re.compile(rf"\b({'|'.join(sorted((*KEYS, *TABLES_NOT_AUDITED)))})\b")


def limit_query(query: str, project: str, place: str) -> str:
    """Return a query that sees the records of one project alone.

    Args:
        query: A SELECT over our tables.
        project: The project.
        place: What names the real tables apart from those of the same name here: "main." in a file, "" on a server.
    """
    check_project(project, "name a project")  # it is written into the query
    if not query.startswith("SELECT "):
        raise ValueError(f"not a query that can be limited to a project: {query[:60]}")
    names = sorted(set(_TABLE.findall(query)))
    if not names:
        return query
    rules = ((name, _write_rule(name, project, place)) for name in names)
    views = (f"{name} AS (SELECT * FROM {place}{name} WHERE {rule})" for name, rule in rules)  # noqa: S608  # checked
    return f"WITH {', '.join(views)} {query}"


def _write_rule(table: str, project: str, place: str) -> str:
    if table == "events":
        return _write_events_rule(project, place)
    if table == "leases":  # of engines, which work for every project, and of its clusters, their jobs and pipelines
        own = _write_name_rule("name", project, "cluster:")
        watched = _WATCHED.format(column=to_column(project), place=place)
        pipelines = f"SELECT 'pipeline:' || uid FROM {place}pipelines WHERE {_write_rule('pipelines', project, place)}"  # noqa: S608  # constants
        clusters = f"substr(name, 1, 8) = 'cluster:' AND {own}"
        return f"substr(name, 1, 7) = 'engine:' OR ({clusters}) OR {watched} OR name IN ({pipelines})"
    return _RULES.get(table, _NONE).format(project=project, column=to_column(project), place=place)


def _write_events_rule(project: str, place: str) -> str:
    named = _write_name_rule("cluster", project, "")
    subjects = " UNION ALL ".join(
        f"SELECT '{table[:-1]} ' || {key} FROM {place}{table} WHERE {_write_rule(table, project, place)}"  # noqa: S608  # constants
        for table, key in _OF_NO_CLUSTER.items()
    )
    return f"({named}) OR (cluster = '' AND subject IN ({subjects}))"


def _write_name_rule(column: str, project: str, lead: str) -> str:
    if project == DEFAULT_PROJECT:
        return _BARE.format(name=column)
    prefix = f"{lead}{project}/"
    return _QUALIFIED.format(name=column, length=len(prefix), prefix=prefix)
