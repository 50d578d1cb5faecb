"""Settings of this computer and this person, which only the configuration has and no task file."""

from __future__ import annotations

from typing import Literal

from orchestrator.task.section import Count, Minutes, Percent, Section, Text, own


class LocalSettings(Section):
    """Settings of local hosts, which only the configuration has."""

    root: Text = own("", "folder in which local hosts live")
    sshd: Text = own("", "the sshd program to use")


class TeamSettings(Section):
    """Settings of a person's work in a team, which only the configuration has."""

    project: Text = own("", "the project in which commands work; names of clusters are unique in it", unset="default")


class StoreSettings(Section):
    """Settings of the store, which only the configuration has."""

    backup: Text = own("", "bucket into which the store is copied by itself", "gs://…, s3://… or file:///…")
    backup_minutes: Count = own(15, "how old the last copy may be before the next one")


class FilesSettings(Section):
    """Settings of the files that launches send, which only the configuration has."""

    keep_bytes: Count = own(20 << 30, "bytes of files of launches that are kept on this computer, at most")


class NotifySettings(Section):
    """Settings of notifications, which only the configuration has. Secrets are named, and never written here."""

    webhook: Text = own("", "URL that gets each message as JSON, or env:NAME or file:PATH that has it")
    webhook_secret: Text = own("", "env:NAME or file:PATH of the key that signs these messages (whsec_…)")
    slack: Text = own("", "env:NAME or file:PATH of the URL of a Slack webhook")
    email_to: list[Text] = own([], "addresses that get each message by e-mail", "a list of e-mail addresses")
    email_from: Text = own("", "the sender of these e-mails")
    smtp: Text = own("", "the mail server, as HOST:PORT")
    smtp_security: Literal["starttls", "tls", "none"] = own("starttls", "how the connection to it is encrypted")
    smtp_user: Text = own("", "login at the mail server")
    smtp_password: Text = own("", "env:NAME or file:PATH of its password")
    kinds: list[Text] = own(
        [], "messages that are sent, all if absent: ended, failed, lost, limit, waiting, silent, stuck"
    )
    waiting_minutes: Minutes = own(30, "how long a job waits for machines before a message")
    near_percent: Percent = own(80, "the part of a limit that is used before a message")


class SshSettings(Section):
    """Settings of logins to hosts, which only the configuration has."""

    recovery_key: Text = own("", "public SSH key that every rented host admits, for when a computer is lost")
