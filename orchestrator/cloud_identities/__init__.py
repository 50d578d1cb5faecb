"""Credentials of another identity than this computer's own: a role of AWS, a service account of Google.

The libraries of the vendors fetch them with the credentials that this computer has, renew them before they end, and
keep them in memory alone. Drivers and buckets share these functions; nothing here is imported before it is needed.
"""
