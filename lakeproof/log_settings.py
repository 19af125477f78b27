"""
The rows of the table of settings that are about the log: how it is signed, sealed, anchored and appended to.
"""

from __future__ import annotations

from lakeproof.setting_kinds import Kind, Setting

LOG_SETTINGS: tuple[Setting, ...] = (
    Setting(
        name="checkpoint_interval_s",
        kind=Kind.NUMBER,
        default=1.0,
        unit="seconds",
        least=0.01,
        most=3600,
        meaning="least time between two signed checkpoints of a log",
    ),
    Setting(
        name="signer_agent",
        kind=Kind.PATH,
        default=None,
        meaning="socket of the SSH agent that holds the signer's key; without it the key is a file in the home",
    ),
    Setting(
        name="signer_agent_key",
        kind=Kind.TEXT,
        default=None,
        meaning="the agent's Ed25519 key to begin with, as ssh-add -l prints it (SHA256:…); if set, it must be one of "
        "those that sign at every later start",
    ),
    Setting(
        name="seal_parts",
        kind=Kind.INTEGER,
        default=1,
        most=1,
        meaning="1: payload parts that are about a person are encrypted under a key of that person's; 0: they are not",
    ),
    Setting(
        name="key_encryption_key",
        kind=Kind.PATH,
        default=None,
        meaning="file with the key that encrypts the keys of persons; without it one in the home directory",
    ),
    Setting(
        name="anchor_interval_s",
        kind=Kind.NUMBER,
        default=60.0,
        unit="seconds",
        least=0.01,
        most=86_400,
        meaning="time between two rounds in which the system log takes size and root of every log that has moved",
    ),
    Setting(
        name="witness_policy",
        kind=Kind.PATH,
        default=None,
        meaning="file with the witnesses of the system log and their quorum (C2SP tlog-policy); with it, no checkpoint "
        "of the system log is published before the quorum has cosigned it",
    ),
    Setting(
        name="time_stamp_url",
        kind=Kind.SECRET,
        default=None,
        meaning="URL of a time-stamping authority (RFC 3161) for the system log; without it there are no stamps",
    ),
    Setting(name="time_stamp_roots", kind=Kind.PATH, default=None, meaning="PEM file with the roots of that authority"),
    Setting(
        name="time_stamp_policy", kind=Kind.TEXT, default=None, meaning="object identifier of the policy to stamp under"
    ),
    Setting(
        name="time_stamp_interval_s",
        kind=Kind.NUMBER,
        default=3600.0,
        unit="seconds",
        least=1,
        most=604_800,
        meaning="least time between two stamps",
    ),
    Setting(
        name="publish_to",
        kind=Kind.TEXT,
        default=None,
        meaning="places outside where checkpoints of the system log are published, separated by commas: "
        "s3://bucket/prefix (with object lock and a default retention), git:<absolute path or URL>#<branch>, "
        "file:/path (for others to collect)",
    ),
    Setting(
        name="publish_interval_s",
        kind=Kind.NUMBER,
        default=3600.0,
        unit="seconds",
        least=0.01,
        most=604_800,
        meaning="time between two checkpoints that are published to a place",
    ),
    Setting(
        name="append_queue_max",
        kind=Kind.INTEGER,
        default=10_000,
        unit="groups",
        least=1,
        most=1_000_000,
        meaning="groups that may wait to be appended; beyond it the gateway answers 503",
    ),
    Setting(
        name="append_queue_mib",
        kind=Kind.INTEGER,
        default=128,
        unit="MiB",
        least=4,
        most=65_536,
        meaning="events and payload parts that may wait to be appended (sealed parts take twice as much memory); "
        "beyond it the gateway answers 503",
    ),
    Setting(
        name="append_batch_max",
        kind=Kind.INTEGER,
        default=256,
        unit="groups",
        least=1,
        most=10_000,
        meaning="groups that are appended in one transaction",
    ),
    Setting(
        name="append_deadline_s",
        kind=Kind.NUMBER,
        default=10.0,
        unit="seconds",
        least=0.1,
        most=600,
        meaning="how long a caller waits for an append before its outcome is called unknown",
    ),
)
